//! Sparkplug B without input or output: topics, payloads, and a host's view of an edge node.
//!
//! Names such as `tck-id-topics-nbirth-seq-num` cite the requirements of the Eclipse Sparkplug
//! specification, version 3.0. Payloads are messages of Protocol Buffers, whose fields have the
//! numbers of `sparkplug_b.proto` of that specification.

mod follower;
mod read;
mod topic;
mod write;

pub use follower::{Followed, SparkplugFollower, SparkplugGap, SparkplugReport};
pub use read::{SparkplugError, SparkplugPayload, body_at_end, decode_sparkplug};
pub use topic::{NAMESPACE, SparkplugKind, SparkplugTopic};
pub use write::{
    MetricSet, write_birth, write_data, write_death, write_device_death, write_rebirth,
};
