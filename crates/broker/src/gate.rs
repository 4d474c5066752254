//! Decisions on logins, subscriptions and messages, from users and rights in Redis. The broker
//! reads the rights once, at the login, and keeps them with the session.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rmqtt::acl::{Action, AuthInfo, Permission, Rule, Topic};
use rmqtt::codec::v5::SubscribeAckReason;
use rmqtt::hook::{Handler, HookResult, Parameter, Register, ReturnType, Type};
use rmqtt::types::{AuthResult, ConnectInfo, Id, LastWill, PublishAclResult, SubscribeAclResult};

use crate::counts::BrokerCounts;
use crate::directory::{Directory, User};
use crate::options::Trusted;
use crate::rights::{Access, grants};

/// Clients whose login Redis did not answer. rmqtt's hook has no result for that case. So the gate
/// admits them, and the session table refuses them with CONNACK 3 [MQTT-3.2.2-4].
#[derive(Default)]
pub struct Undecided(Mutex<HashSet<Id>>);

impl Undecided {
    fn note(&self, id: Id) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Removes a client; returns `true` if the client was undecided.
    pub fn take(&self, id: &Id) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

/// Decides on logins, subscriptions and messages.
pub struct Gate {
    /// The users.
    pub directory: Directory,
    /// A user outside Redis who may do everything.
    pub trusted: Option<Trusted>,
    /// Clients without an answer of Redis.
    pub undecided: Arc<Undecided>,
    /// The counters.
    pub counts: Arc<BrokerCounts>,
}

impl Gate {
    /// Registers the gate with rmqtt.
    pub async fn close(self, register: &dyn Register) {
        let gate = Arc::new(self);
        for question in QUESTIONS {
            register.add(question, Box::new(GateAnswers(gate.clone()))).await;
        }
        register.start().await;
    }

    async fn login(&self, client: &ConnectInfo) -> AuthResult {
        let (Some(name), Some(password)) = (client.username(), client.password()) else {
            return self.refused(AuthResult::BadUsernameOrPassword);
        };
        if self.trusted.as_ref().is_some_and(|trusted| trusted.is(name, password)) {
            return AuthResult::Allow(true, None);
        }
        match self.directory.user(name).await {
            Ok(Some(user)) if user.password == password[..] => self.admitted(client, user),
            Ok(_) => self.refused(AuthResult::BadUsernameOrPassword),
            Err(_) => {
                self.counts.auth_unavailable.inc();
                self.undecided.note(client.id().clone());
                AuthResult::Allow(false, None)
            }
        }
    }

    /// Admits a client with the rights for its session. rmqtt does not ask before it publishes a
    /// will: so a client without the right to publish its will is refused.
    fn admitted(&self, client: &ConnectInfo, user: User) -> AuthResult {
        let rules = rules(user);
        let will = client.last_will().map(|will| match will {
            LastWill::V3(will) => &will.topic,
            LastWill::V5(will) => &will.topic,
        });
        if will.is_some_and(|topic| !may(&rules, Access::Publish, topic)) {
            return self.refused(AuthResult::NotAuthorized);
        }
        AuthResult::Allow(false, Some(AuthInfo { superuser: false, expire_at: None, rules }))
    }

    fn refused(&self, answer: AuthResult) -> AuthResult {
        self.counts.auth_refused.inc();
        answer
    }

    fn subscribe(&self, rights: Option<&AuthInfo>, filter: &str) -> Option<SubscribeAclResult> {
        if rights.is_some_and(|rights| may(&rights.rules, Access::Subscribe, filter)) {
            return None;
        }
        self.counts.subscribe_denied.inc();
        Some(SubscribeAclResult::new_failure(SubscribeAckReason::NotAuthorized))
    }

    fn publish(&self, rights: Option<&AuthInfo>, topic: &str) -> PublishAclResult {
        if rights.is_some_and(|rights| may(&rights.rules, Access::Publish, topic)) {
            return PublishAclResult::allow();
        }
        self.counts.publish_denied.inc();
        PublishAclResult::rejected(false, None)
    }
}

struct GateAnswers(Arc<Gate>);

#[async_trait]
impl Handler for GateAnswers {
    async fn hook(&self, asked: &Parameter, so_far: Option<HookResult>) -> ReturnType {
        let answer = match asked {
            Parameter::ClientAuthenticate(client) => {
                HookResult::AuthResult(self.0.login(client).await)
            }
            Parameter::ClientSubscribeCheckAcl(session, subscribe) => {
                match self.0.subscribe(session.auth_info.as_ref(), &subscribe.topic_filter) {
                    Some(denied) => HookResult::SubscribeAclResult(denied),
                    None => return (true, so_far),
                }
            }
            Parameter::MessagePublishCheckAcl(session, publish) => HookResult::PublishAclResult(
                self.0.publish(session.auth_info.as_ref(), &publish.topic),
            ),
            _ => return (true, so_far),
        };
        (false, Some(answer))
    }
}

const QUESTIONS: [Type; 3] =
    [Type::ClientAuthenticate, Type::ClientSubscribeCheckAcl, Type::MessagePublishCheckAcl];

/// Returns one rule for each kind of access, with all its rows packed into rmqtt's literal topic.
/// rmqtt keeps rules with the session; its own form would take ten times the memory.
fn rules(user: User) -> Vec<Rule> {
    let rows = Access::ALL.into_iter().zip(user.rows).filter(|(_, rows)| rows.len() > 0);
    rows.map(|(access, rows)| Rule {
        permission: Permission::Allow,
        action: match access {
            Access::Subscribe => Action::Subscribe,
            Access::Publish => Action::Publish,
            Access::Both => Action::All,
        },
        qos: None,
        retain: None,
        topic: Topic { eq_topic_filter: Some(rows.into_text()), topic_filter: None },
    })
    .collect()
}

/// Returns `true` if rules made by [`rules`] allow the action.
fn may(rules: &[Rule], wanted: Access, asked: &str) -> bool {
    rules.iter().any(|rule| {
        let access = match rule.action {
            Action::Subscribe => Access::Subscribe,
            Action::Publish => Access::Publish,
            Action::All => wanted,
        };
        access == wanted && rule.topic.eq_topic_filter.as_ref().is_some_and(|r| grants(r, asked))
    })
}
