//! The users of the broker as Redis has them: a password, and rows of what they may do. One
//! connection carries the questions of all clients, without waiting between them. It knows no
//! broker crate and decides nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::rights::{Access, PACKED_MAX, Rows};

/// Redis did not answer, or not what was asked; it is logged where that begins.
#[derive(Debug)]
pub struct Unanswered;

/// A user that Redis knows.
#[derive(Debug)]
pub struct User {
    /// The password, as it stands there.
    pub password: Vec<u8>,
    /// Topic filters by what they let the user do, in the order of [`Access::ALL`].
    pub rows: [Rows; 3],
}

/// Where users are looked up.
pub struct Directory {
    client: Client,
    /// Host and port, for the log.
    address: String,
    connection: Mutex<Option<Numbered>>,
    is_away: AtomicBool,
}

/// A connection, and which one it is.
#[derive(Clone)]
struct Numbered {
    number: u64,
    connection: MultiplexedConnection,
    /// Whether nobody else has used it before.
    is_new: bool,
}

impl Directory {
    /// Users at this address; nothing is connected yet.
    ///
    /// # Errors
    /// Where the address is of a kind that this program cannot reach.
    pub fn new(info: ConnectionInfo) -> RedisResult<Self> {
        let address = info.addr().to_string();
        let client = Client::open(info)?;
        Ok(Self { client, address, connection: Mutex::default(), is_away: AtomicBool::new(false) })
    }

    /// The user of this name; `Ok(None)` where there is none.
    ///
    /// # Errors
    /// Where Redis does not say within [`ANSWER_WITHIN`].
    pub async fn user(&self, name: &str) -> Result<Option<User>, Unanswered> {
        let answer = match timeout(ANSWER_WITHIN, self.asked(name)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
        };
        match answer {
            Ok(answer) => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    log::warn!("Redis at {} answers again", self.address);
                }
                Ok(answer.map(|(password, rows)| User { password, rows: packed(name, &rows) }))
            }
            Err(error) => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    let address = &self.address;
                    log::warn!("Redis at {address} does not answer ({error}): logins are refused");
                }
                Err(Unanswered)
            }
        }
    }

    /// Asks, and once more on a new connection where an old one had ended unnoticed.
    async fn asked(&self, name: &str) -> RedisResult<Option<Answer>> {
        let mut used = self.connected(0).await?;
        let mut answer = ask(&mut used.connection, name).await;
        if answer.is_err() && !used.is_new {
            used = self.connected(used.number).await?;
            answer = ask(&mut used.connection, name).await;
        }
        if answer.is_err() {
            self.forget(used.number).await;
        }
        answer
    }

    /// The connection, made anew where there is none or only the one that `failed`.
    async fn connected(&self, failed: u64) -> RedisResult<Numbered> {
        let mut place = self.connection.lock().await;
        let last = place.as_ref().map_or(failed, |held| held.number);
        if let Some(held) = place.as_ref().filter(|held| held.number != failed) {
            return Ok(Numbered { is_new: false, ..held.clone() });
        }
        *place = None;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let made = Numbered { number: last + 1, connection, is_new: true };
        *place = Some(made.clone());
        Ok(made)
    }

    async fn forget(&self, failed: u64) {
        let mut place = self.connection.lock().await;
        if place.as_ref().is_some_and(|held| held.number == failed) {
            *place = None;
        }
    }
}

/// Password and rows, as Redis writes them.
type Answer = (Vec<u8>, Vec<Row>);
/// A topic filter and an access.
type Row = (Vec<u8>, Vec<u8>);

async fn ask(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<Option<Answer>> {
    let mut questions = redis::pipe();
    questions.cmd("HGET").arg(format!("mqtt_user:{name}")).arg("password");
    questions.cmd("HGETALL").arg(format!("mqtt_acl:{name}"));
    let (password, rows): (Option<Vec<u8>>, Vec<Row>) = questions.query_async(connection).await?;
    Ok(password.map(|password| (password, rows)))
}

/// The rows that say something, up to [`PACKED_MAX`].
fn packed(name: &str, rows: &[Row]) -> [Rows; 3] {
    let mut packed = [Rows::default(), Rows::default(), Rows::default()];
    for (filter, access) in rows {
        let (Ok(filter), Some(access)) = (str::from_utf8(filter), Access::from_word(access)) else {
            continue;
        };
        if packed.iter().map(Rows::len).sum::<usize>() + filter.len() >= PACKED_MAX {
            log::warn!("user {name} has more rows than {PACKED_MAX} bytes hold: some are left out");
            break;
        }
        packed[access as usize].add(filter);
    }
    packed
}

/// How long a client waits for Redis until it is refused.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
