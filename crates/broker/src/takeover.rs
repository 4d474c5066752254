//! Session takeover: a client connects while the broker still ends its last session. rmqtt alone
//! refuses one in seven clients that return at once, and sends unacknowledged messages in reverse
//! order. This table of sessions asks again and reverses the order. It also stops clients without a
//! decision on their login, counts messages, and keeps no lock while it waits. rmqtt's own table
//! does the rest.

use std::result::Result as StdResult;
use std::sync::Arc;

use anyhow::bail;
use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::session::Session;
use rmqtt::shared::{DefaultShared, Entry, RetainLoadCallback, Shared};
use rmqtt::types::{
    ForwardedCount, ForwardedRecipients, From, Id, IsAdmin, MsgID, NodeId, OfflineSession, Publish,
    Reason, SessionStatus, SubRelations, SubRelationsMap, SubsSearchParams, SubsSearchResult,
    Subscribe, SubscribeReturn, To, TopicFilter, Tx, Unsubscribe,
};

use crate::counts::BrokerCounts;
use crate::gate::Undecided;

/// All sessions of the broker.
pub struct Sessions {
    /// rmqtt's own table.
    pub table: DefaultShared,
    /// Clients without a decision on their login.
    pub undecided: Arc<Undecided>,
    /// The counters.
    pub counts: Arc<BrokerCounts>,
}

type Undelivered = Vec<(To, From, Publish, Reason)>;

#[async_trait]
impl Shared for Sessions {
    fn entry(&self, id: Id) -> Box<dyn Entry> {
        Box::new(ClientPlace { entry: self.table.entry(id), undecided: self.undecided.clone() })
    }

    fn exist(&self, client_id: &str) -> bool {
        self.table.exist(client_id)
    }

    async fn forwards(
        &self,
        msg_id: Option<MsgID>,
        from: From,
        publish: Publish,
    ) -> StdResult<ForwardedCount, (ForwardedCount, Undelivered)> {
        self.counts.received.inc();
        self.table.forwards(msg_id, from, publish).await
    }

    async fn forwards_and_get_shareds(
        &self,
        from: From,
        publish: Publish,
    ) -> StdResult<(SubRelationsMap, ForwardedRecipients), (ForwardedRecipients, Undelivered)> {
        self.table.forwards_and_get_shareds(from, publish).await
    }

    async fn forwards_to(
        &self,
        from: From,
        publish: &Publish,
        relations: SubRelations,
        msg_id: Option<MsgID>,
    ) -> StdResult<ForwardedRecipients, (ForwardedRecipients, Undelivered)> {
        self.table.forwards_to(from, publish, relations, msg_id).await
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Box<dyn Entry>> + Sync + Send + '_> {
        self.table.iter()
    }

    fn random_session(&self) -> Option<Session> {
        self.table.random_session()
    }

    async fn session_status(&self, client_id: &str) -> Option<SessionStatus> {
        self.table.session_status(client_id).await
    }

    async fn client_states_count(&self) -> usize {
        self.table.client_states_count().await
    }

    fn sessions_count(&self) -> usize {
        self.table.sessions_count()
    }

    async fn query_subscriptions(&self, query: &SubsSearchParams) -> Vec<SubsSearchResult> {
        self.table.query_subscriptions(query).await
    }

    async fn subscriptions_count(&self) -> usize {
        self.table.subscriptions_count().await
    }

    async fn retain_load_with(
        &self,
        filter: &TopicFilter,
        callback: Arc<dyn RetainLoadCallback>,
    ) -> Result<Vec<(NodeId, MsgID)>> {
        self.table.retain_load_with(filter, callback).await
    }
}

/// The place of one client id in the table.
struct ClientPlace {
    entry: Box<dyn Entry>,
    undecided: Arc<Undecided>,
}

#[async_trait]
impl Entry for ClientPlace {
    async fn try_lock(&self) -> Result<Box<dyn Entry>> {
        if self.undecided.take(&self.entry.id()) {
            bail!("no decision on the login of this client");
        }
        let entry = self.entry.try_lock().await?;
        Ok(Box::new(Self { entry, undecided: self.undecided.clone() }))
    }

    /// Asks once more if the old session ended without an answer.
    async fn kick(&mut self, clean: bool, clear: bool, admin: IsAdmin) -> Result<OfflineSession> {
        let mut kicked = self.entry.kick(clean, clear, admin).await;
        if kicked.is_err() {
            kicked = self.entry.kick(clean, clear, admin).await;
        }
        if let Ok(OfflineSession::Exist(Some(session))) = &mut kicked {
            // rmqtt sends these from the last to the first, against [MQTT-4.6.0-1].
            session.inflight_messages.reverse();
        }
        kicked
    }

    fn id(&self) -> Id {
        self.entry.id()
    }

    fn id_same(&self) -> Option<bool> {
        self.entry.id_same()
    }

    async fn set(&mut self, session: Session, tx: Tx) -> Result<()> {
        self.entry.set(session, tx).await
    }

    async fn remove(&mut self) -> Result<Option<(Session, Tx)>> {
        self.entry.remove().await
    }

    async fn remove_with(&mut self, id: &Id) -> Result<Option<(Session, Tx)>> {
        self.entry.remove_with(id).await
    }

    async fn online(&self) -> bool {
        self.is_connected().await
    }

    /// Asks a copy of the session. rmqtt's own entry keeps a lock of the table while it waits, and
    /// a task that wants this lock holds its thread, which may be the last one.
    async fn is_connected(&self) -> bool {
        match self.entry.session() {
            Some(session) => session.connected().await.unwrap_or_default(),
            None => false,
        }
    }

    fn session(&self) -> Option<Session> {
        self.entry.session()
    }

    fn exist(&self) -> bool {
        self.entry.exist()
    }

    fn tx(&self) -> Option<Tx> {
        self.entry.tx()
    }

    async fn subscribe(&self, subscribe: &Subscribe) -> Result<SubscribeReturn> {
        self.entry.subscribe(subscribe).await
    }

    async fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Result<bool> {
        self.entry.unsubscribe(unsubscribe).await
    }

    async fn publish(&self, from: From, p: Publish) -> StdResult<(), (From, Publish, Reason)> {
        self.entry.publish(from, p).await
    }

    async fn subscriptions(&self) -> Option<Vec<SubsSearchResult>> {
        self.entry.subscriptions().await
    }
}
