//! Features of plans, one file for each that has a check of its own: how a case draws the feature,
//! and the invariants that a run with it keeps.

pub mod addresses;
pub mod amqp;
pub mod authentication;
pub mod counts;
mod data;
pub mod expiry;
pub mod flapping;
pub mod flows;
pub mod groups;
pub mod limits;
pub mod links;
pub mod nats;
pub mod quic;
pub mod recordings;
pub mod round_trips;
mod sessions;
mod unchecked;

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;

/// A feature of plans.
pub struct Feature {
    /// Draws it for the case of a seed, apart from all other draws.
    pub draw: fn(&mut Case, u64),
    /// Checks a run, with the feature or without.
    pub check: fn(&Run, &Totals),
}

/// All features in the order of their introduction: the case that a seed once had is drawn with the
/// first of them only.
pub const FEATURES: [Feature; 24] = [
    unchecked(unchecked::draw_exclusions),
    unchecked(unchecked::draw_websockets),
    unchecked(unchecked::draw_versions),
    Feature { draw: round_trips::draw, check: round_trips::check },
    unchecked(unchecked::draw_texts),
    unchecked(unchecked::draw_retained),
    unchecked(unchecked::draw_ends),
    unchecked(unchecked::draw_takeovers),
    Feature { draw: groups::draw, check: groups::check },
    Feature { draw: expiry::draw, check: expiry::check },
    Feature { draw: flapping::draw, check: flapping::check },
    Feature { draw: authentication::draw, check: authentication::check },
    Feature { draw: limits::draw, check: limits::check },
    unchecked(unchecked::draw_tls),
    Feature { draw: nats::draw, check: nats::check },
    Feature { draw: |_, _| {}, check: sessions::check },
    Feature { draw: counts::draw, check: counts::check },
    Feature { draw: links::draw, check: links::check },
    Feature { draw: addresses::draw, check: addresses::check },
    Feature { draw: quic::draw, check: quic::check },
    unchecked(data::draw),
    Feature { draw: recordings::draw, check: recordings::check },
    Feature { draw: amqp::draw, check: amqp::check },
    Feature { draw: flows::draw, check: flows::check },
];

const fn unchecked(draw: fn(&mut Case, u64)) -> Feature {
    Feature { draw, check: |_, _| {} }
}
