//! A client id that comes back while its last session is still being put away. rmqtt alone refuses
//! one in seven of those that return at once, and sends what they had not acknowledged last first.
//! This asks again and turns the order round; all else it hands on to rmqtt's own session table.

use std::result::Result as StdResult;
use std::sync::Arc;

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::session::Session;
use rmqtt::shared::{DefaultShared, Entry, RetainLoadCallback, Shared};
use rmqtt::types::{
    ForwardedCount, ForwardedRecipients, From, Id, IsAdmin, MsgID, NodeId, OfflineSession, Publish,
    Reason, SessionStatus, SubRelations, SubRelationsMap, SubsSearchParams, SubsSearchResult,
    Subscribe, SubscribeReturn, To, TopicFilter, Tx, Unsubscribe,
};

/// All sessions of the broker.
pub struct Sessions(pub DefaultShared);

type Undelivered = Vec<(To, From, Publish, Reason)>;

#[async_trait]
impl Shared for Sessions {
    fn entry(&self, id: Id) -> Box<dyn Entry> {
        Box::new(Place(self.0.entry(id)))
    }

    fn exist(&self, client_id: &str) -> bool {
        self.0.exist(client_id)
    }

    async fn forwards(
        &self,
        msg_id: Option<MsgID>,
        from: From,
        publish: Publish,
    ) -> StdResult<ForwardedCount, (ForwardedCount, Undelivered)> {
        self.0.forwards(msg_id, from, publish).await
    }

    async fn forwards_and_get_shareds(
        &self,
        from: From,
        publish: Publish,
    ) -> StdResult<(SubRelationsMap, ForwardedRecipients), (ForwardedRecipients, Undelivered)> {
        self.0.forwards_and_get_shareds(from, publish).await
    }

    async fn forwards_to(
        &self,
        from: From,
        publish: &Publish,
        relations: SubRelations,
        msg_id: Option<MsgID>,
    ) -> StdResult<ForwardedRecipients, (ForwardedRecipients, Undelivered)> {
        self.0.forwards_to(from, publish, relations, msg_id).await
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Box<dyn Entry>> + Sync + Send + '_> {
        self.0.iter()
    }

    fn random_session(&self) -> Option<Session> {
        self.0.random_session()
    }

    async fn session_status(&self, client_id: &str) -> Option<SessionStatus> {
        self.0.session_status(client_id).await
    }

    async fn client_states_count(&self) -> usize {
        self.0.client_states_count().await
    }

    fn sessions_count(&self) -> usize {
        self.0.sessions_count()
    }

    async fn query_subscriptions(&self, query: &SubsSearchParams) -> Vec<SubsSearchResult> {
        self.0.query_subscriptions(query).await
    }

    async fn subscriptions_count(&self) -> usize {
        self.0.subscriptions_count().await
    }

    async fn retain_load_with(
        &self,
        filter: &TopicFilter,
        callback: Arc<dyn RetainLoadCallback>,
    ) -> Result<Vec<(NodeId, MsgID)>> {
        self.0.retain_load_with(filter, callback).await
    }
}

/// The place of one client id in the table.
struct Place(Box<dyn Entry>);

#[async_trait]
impl Entry for Place {
    async fn try_lock(&self) -> Result<Box<dyn Entry>> {
        Ok(Box::new(Self(self.0.try_lock().await?)))
    }

    /// Asks once more where the old session ended without an answer: then it is gone.
    async fn kick(&mut self, clean: bool, clear: bool, admin: IsAdmin) -> Result<OfflineSession> {
        let mut kicked = self.0.kick(clean, clear, admin).await;
        if kicked.is_err() {
            kicked = self.0.kick(clean, clear, admin).await;
        }
        if let Ok(OfflineSession::Exist(Some(session))) = &mut kicked {
            // rmqtt sends these from the last to the first, against [MQTT-4.6.0-1].
            session.inflight_messages.reverse();
        }
        kicked
    }

    fn id(&self) -> Id {
        self.0.id()
    }

    fn id_same(&self) -> Option<bool> {
        self.0.id_same()
    }

    async fn set(&mut self, session: Session, tx: Tx) -> Result<()> {
        self.0.set(session, tx).await
    }

    async fn remove(&mut self) -> Result<Option<(Session, Tx)>> {
        self.0.remove().await
    }

    async fn remove_with(&mut self, id: &Id) -> Result<Option<(Session, Tx)>> {
        self.0.remove_with(id).await
    }

    async fn online(&self) -> bool {
        self.0.online().await
    }

    async fn is_connected(&self) -> bool {
        self.0.is_connected().await
    }

    fn session(&self) -> Option<Session> {
        self.0.session()
    }

    fn exist(&self) -> bool {
        self.0.exist()
    }

    fn tx(&self) -> Option<Tx> {
        self.0.tx()
    }

    async fn subscribe(&self, subscribe: &Subscribe) -> Result<SubscribeReturn> {
        self.0.subscribe(subscribe).await
    }

    async fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Result<bool> {
        self.0.unsubscribe(unsubscribe).await
    }

    async fn publish(&self, from: From, p: Publish) -> StdResult<(), (From, Publish, Reason)> {
        self.0.publish(from, p).await
    }

    async fn subscriptions(&self) -> Option<Vec<SubsSearchResult>> {
        self.0.subscriptions().await
    }
}
