//! What publishers have sent that no engine plays: the conductor tells it when a stage closes, and
//! the engine of the first shard owes it to those who ought to have received it. It knows no
//! connection.

use plan::Sent;
use rustc_hash::FxHashMap;

use crate::pipes;
use crate::shared::Shared;

/// Messages of each such publisher, by population and client, that are owed already.
#[derive(Default)]
pub struct Told(FxHashMap<(usize, u32), u64>);

/// Owes what has been sent since the last call; the first shard does it for all.
pub fn balance(shared: &mut Shared, sent: &[Sent]) {
    if shared.setup.shard.index() != 0 {
        return;
    }
    for told in sent {
        let population = shared.setup.plan.populations.get(told.population);
        if population.is_some_and(|p| p.is_told() && told.client < p.clients) {
            balance_one(shared, told);
        } else {
            let Sent { population, client, .. } = told;
            pipes::log(&format!(
                "what was sent is not owed: client {client} of population {population} is no \
                 publisher of another program"
            ));
        }
    }
}

fn balance_one(shared: &mut Shared, told: &Sent) {
    let &Sent { population, client, total } = told;
    let Shared { setup, tally, judged, receivers, told, .. } = shared;
    let before = told.0.insert((population, client), total).unwrap_or(0);
    let plan = &setup.plan.populations[population];
    let target = plan.at.target(setup.plan.seed, population, client);
    let (n, topic) = (plan.first + u64::from(client), &plan.publications[0].topic);
    let variants = setup.populations[population].publications[0].variants;
    let mut deliveries = Vec::new();
    for variant in (0..variants.count()).take_while(|_| total > before) {
        let below = |end: u64| variants.messages(client, variant, end);
        let count = (below(total) - below(before)).cast_signed();
        if count == 0 {
            continue;
        }
        receivers.frame_deliveries(&topic.text(n, variant), target, &mut deliveries);
        for (receiver, &deliveries) in deliveries.iter().enumerate() {
            if judged[receiver] && deliveries > 0 {
                let owed = count * deliveries.cast_signed();
                tally.flow(population, receiver).counters.expected_total += owed;
            }
        }
    }
}
