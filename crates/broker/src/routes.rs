//! Routes of messages. rmqtt's router keeps a lock of a filter's subscriptions while it asks which
//! members of a shared group are connected. A task that subscribes, unsubscribes or ends holds its
//! thread until it has this lock. Once all threads wait so, the broker stands still for ever. This
//! router lets none change subscriptions while it looks for receivers.

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::router::{DefaultRouter, Router};
use rmqtt::types::{
    AllRelationsMap, HashMap, Id, NodeId, Route, SubRelationsMap, SubsSearchParams,
    SubsSearchResult, SubscriptionOptions, TopicName,
};
use rmqtt::utils::Counter;
use tokio::sync::RwLock;

/// All subscriptions of the broker.
pub struct Routes {
    /// rmqtt's own router.
    router: DefaultRouter,
    /// Read while receivers are looked for, written while a client subscribes or unsubscribes.
    gate: RwLock<()>,
}

impl Routes {
    /// Routes of the subscriptions that rmqtt's router keeps.
    pub fn new(router: DefaultRouter) -> Self {
        Self { router, gate: RwLock::default() }
    }
}

#[async_trait]
impl Router for Routes {
    async fn add(&self, topic_filter: &str, id: Id, options: SubscriptionOptions) -> Result<()> {
        let _alone = self.gate.write().await;
        self.router.add(topic_filter, id, options).await
    }

    async fn remove(&self, topic_filter: &str, id: Id) -> Result<bool> {
        let _alone = self.gate.write().await;
        self.router.remove(topic_filter, id).await
    }

    async fn matches(&self, id: Id, topic: &TopicName) -> Result<SubRelationsMap> {
        let _shared = self.gate.read().await;
        self.router.matches(id, topic).await
    }

    async fn is_online(&self, node_id: NodeId, client_id: &str) -> bool {
        self.router.is_online(node_id, client_id).await
    }

    async fn gets(&self, limit: usize) -> Vec<Route> {
        self.router.gets(limit).await
    }

    async fn get(&self, topic: &str) -> Result<Vec<Route>> {
        self.router.get(topic).await
    }

    async fn query_subscriptions(&self, query: &SubsSearchParams) -> Vec<SubsSearchResult> {
        self.router.query_subscriptions(query).await
    }

    async fn topics_tree(&self) -> usize {
        self.router.topics_tree().await
    }

    fn topics(&self) -> Counter {
        self.router.topics()
    }

    fn routes(&self) -> Counter {
        self.router.routes()
    }

    fn merge_topics(&self, topics: &HashMap<NodeId, Counter>) -> Counter {
        self.router.merge_topics(topics)
    }

    fn merge_routes(&self, routes: &HashMap<NodeId, Counter>) -> Counter {
        self.router.merge_routes(routes)
    }

    async fn list_topics(&self, top: usize) -> Vec<String> {
        self.router.list_topics(top).await
    }

    async fn list_relations(&self, top: usize) -> Vec<serde_json::Value> {
        self.router.list_relations(top).await
    }

    fn relations(&self) -> &AllRelationsMap {
        self.router.relations()
    }
}
