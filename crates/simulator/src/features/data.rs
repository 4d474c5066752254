//! Data of files, and topics with weights, in simulated runs: how a case draws them.

use plan::{Order, Payload, Records};
use testkit::Rng;

use crate::case::Case;

/// Draws weights of topics, and payloads from files, apart from the other draws. The payloads have
/// a stamp in front of the data, as sizes have one within.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xda7a_5eed);
    for population in &mut case.plan.populations {
        if population.mqtt().is_none() {
            continue;
        }
        for publication in &mut population.publications {
            let values = publication.topic.variants();
            if values > 1 && !publication.request && rng.chance(40) {
                publication.order = Order::Turn;
                publication.weights = (0..values).map(|_| 1 + rng.below(9) as u32).collect();
            }
            let has_size = matches!(publication.payload, Payload::Fixed { .. });
            if has_size && !publication.request && rng.chance(15) {
                let texts = ["", "b25l", "AP8=", "cmVjb3JkIHRocmVl"].map(str::to_owned);
                let count = 1 + rng.below(texts.len());
                let records = Records::try_from(texts[..count].to_vec()).expect("it is base64");
                let order = rng.pick(&[Order::Turn, Order::Shuffled]);
                publication.payload = Payload::Records { records, order, stamped: true };
            }
        }
    }
}
