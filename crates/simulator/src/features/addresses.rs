//! Several addresses of a target's name, in any order and with failover.

use plan::{AddressOrder, AddressUse, Counters};
use testkit::Rng;

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;

const ADDRESSES: [&str; 4] = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"];

/// Draws targets that are names with several addresses.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xadd2_e55e);
    if !rng.chance(30) {
        return;
    }
    let order = rng.pick(&[AddressOrder::First, AddressOrder::InTurn, AddressOrder::Random]);
    case.plan.addresses = Some(AddressUse { order, failover: rng.chance(70) });
    for target in &mut case.plan.targets {
        target.host = "broker.example".into();
        let known = &ADDRESSES[..1 + rng.below(ADDRESSES.len())];
        target.addresses = known.iter().filter_map(|text| text.parse().ok()).collect();
    }
}

/// Every attempt at a name is counted at one of its addresses, with its outcome.
pub fn check(run: &Run, totals: &Totals) {
    let addresses = || run.snapshots.iter().flat_map(|snapshot| &snapshot.addresses);
    if !run.plan().targets.iter().all(plan::Target::is_named) {
        assert_eq!(addresses().count(), 0, "only a name has addresses");
        return;
    }
    let by = |of: fn(&Counters) -> u64| totals.counters.iter().map(of).sum::<u64>();
    let attempts = addresses().map(|a| a.connect_attempts_total).sum::<u64>();
    assert_eq!(attempts, by(|c| c.connect_attempts_total));
    assert_eq!(addresses().map(|a| a.connected_total).sum::<u64>(), by(|c| c.connected_total));
    let failed = addresses().map(|a| a.connect_failed_total).sum::<u64>();
    assert_eq!(failed, by(|c| c.connect_failed_total));
    let outcomes = addresses().flat_map(|a| a.outcomes.values()).sum::<u64>();
    assert_eq!(outcomes, failed, "every failed attempt has a reason");
}
