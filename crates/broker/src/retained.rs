//! Retained messages, in memory. rmqtt carries the tree but leaves its default storage switched off
//! in favour of a plugin that writes to disk; this switches it on. It knows no session and no topic
//! rules.

use std::time::Duration;

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::retain::{DefaultRetainStorage, RetainStorage};
use rmqtt::types::{Retain, TopicFilter, TopicName};

/// All retained messages of the broker, without a limit.
#[derive(Default)]
pub struct Retained {
    tree: DefaultRetainStorage,
}

#[async_trait]
impl RetainStorage for Retained {
    fn enable(&self) -> bool {
        true
    }

    /// An empty payload removes the topic's message [MQTT-3.3.1-10].
    async fn set(&self, topic: &TopicName, retain: Retain, expiry: Option<Duration>) -> Result<()> {
        // rmqtt says zero for "does not expire", the tree would take it as "expired".
        let expiry = expiry.filter(|expiry| !expiry.is_zero());
        self.tree.set_with_timeout(topic, retain, expiry).await
    }

    async fn get(&self, filter: &TopicFilter) -> Result<Vec<(TopicName, Retain)>> {
        self.tree.get_message(filter).await
    }

    async fn count(&self) -> isize {
        self.tree.count().await
    }

    async fn max(&self) -> isize {
        self.tree.max().await
    }
}
