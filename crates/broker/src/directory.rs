//! Users of the broker in Redis: a password, and rows of rights. One connection carries the queries
//! of all clients, without waiting between them.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::rights::{Access, FilterRows, PACKED_MAX};

/// Redis did not answer, or with an error; the log names the first of them.
#[derive(Debug)]
pub struct Unanswered;

/// A user that Redis knows.
#[derive(Debug)]
pub struct User {
    /// The password.
    pub password: Vec<u8>,
    /// Topic filters by access, in the order of [`Access::ALL`].
    pub rows: [FilterRows; 3],
}

/// The users in Redis.
pub struct Directory {
    client: Client,
    /// Host and port, for the log.
    address: String,
    line: Mutex<RedisLine>,
    /// Answers since the start.
    answers: AtomicU64,
    is_away: AtomicBool,
}

/// The connection and its number.
#[derive(Default)]
struct RedisLine {
    connection: Option<MultiplexedConnection>,
    number: u64,
}

impl Directory {
    /// Creates a directory for an address, without a connection.
    ///
    /// # Errors
    /// An address of a kind that this program cannot reach.
    pub fn new(info: ConnectionInfo) -> RedisResult<Self> {
        let address = info.addr().to_string();
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info)?;
        Ok(Self {
            client,
            address,
            line: Mutex::default(),
            answers: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        })
    }

    /// Returns the user of a name; `Ok(None)`: unknown.
    ///
    /// # Errors
    /// Redis has sent nothing for [`SILENCE`].
    pub async fn user(&self, name: &str) -> Result<Option<User>, Unanswered> {
        match self.answered(name).await {
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

    /// Waits as long as Redis answers other clients: while thousands log in at once, an answer can
    /// wait in this process longer than Redis took.
    async fn answered(&self, name: &str) -> Result<Option<RedisAnswer>, String> {
        let mut asked = pin!(self.asked(name));
        loop {
            let before = self.answers.load(Ordering::Relaxed);
            match timeout(SILENCE, &mut asked).await {
                Ok(Ok(answer)) => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) if self.answers.load(Ordering::Relaxed) != before => {}
                Err(_) => break,
            }
        }
        // The next query opens a connection; a query that holds the lock is opening one.
        if let Ok(mut line) = self.line.try_lock() {
            line.connection = None;
        }
        Err(format!("silent for {} s", SILENCE.as_secs()))
    }

    /// Queries, and once more on a new connection if the old one had ended unnoticed.
    async fn asked(&self, name: &str) -> RedisResult<Option<RedisAnswer>> {
        let (mut connection, number) = self.connected(None).await?;
        match ask(&mut connection, name).await {
            Ok(answer) => Ok(answer),
            // An error is an answer too, for example a key of another type.
            Err(error) if !error.is_unrecoverable_error() => Err(error),
            Err(_) => ask(&mut self.connected(Some(number)).await?.0, name).await,
        }
    }

    /// Returns the connection and its number; opens one if there is none but the `failed` one.
    async fn connected(&self, failed: Option<u64>) -> RedisResult<(MultiplexedConnection, u64)> {
        let mut line = self.line.lock().await;
        if let Some(connection) = line.connection.as_ref().filter(|_| failed != Some(line.number)) {
            return Ok((connection.clone(), line.number));
        }
        line.connection = None;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SILENCE))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUESTIONS_MAX);
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        line.connection = Some(made.clone());
        line.number += 1;
        Ok((made, line.number))
    }
}

/// Password and rows in Redis.
type RedisAnswer = (Vec<u8>, Vec<AccessRow>);
/// A topic filter and an access.
type AccessRow = (Vec<u8>, Vec<u8>);

async fn ask(
    connection: &mut MultiplexedConnection,
    name: &str,
) -> RedisResult<Option<RedisAnswer>> {
    let mut questions = redis::pipe();
    questions.cmd("HGET").arg(format!("mqtt_user:{name}")).arg("password");
    questions.cmd("HGETALL").arg(format!("mqtt_acl:{name}"));
    let (password, rows): (Option<Vec<u8>>, Vec<AccessRow>) =
        questions.query_async(connection).await?;
    Ok(password.map(|password| (password, rows)))
}

/// Packs the valid rows, up to [`PACKED_MAX`].
fn packed(name: &str, rows: &[AccessRow]) -> [FilterRows; 3] {
    let mut packed = [FilterRows::default(), FilterRows::default(), FilterRows::default()];
    for (filter, access) in rows {
        let (Ok(filter), Some(access)) = (str::from_utf8(filter), Access::from_word(access)) else {
            continue;
        };
        if packed.iter().map(FilterRows::len).sum::<usize>() + filter.len() >= PACKED_MAX {
            log::warn!("user {name} has more rows than {PACKED_MAX} bytes hold: some are left out");
            break;
        }
        packed[access as usize].add(filter);
    }
    packed
}

/// Queries that may wait to be sent. The crate's own limit of 50 allows 1500 logins a second where
/// Redis runs only every 30 ms on a busy processor.
const QUESTIONS_MAX: usize = 4096;
/// Longest silence of Redis before waiting clients are refused.
const SILENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::{AccessRow, FilterRows, PACKED_MAX, packed};

    fn texts(rows: &[AccessRow]) -> [String; 3] {
        packed("device", rows).map(FilterRows::into_text)
    }

    #[test]
    fn rows_are_kept_by_access_and_invalid_rows_are_not() {
        let rows: [(&[u8], &[u8]); 6] =
            [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"9"), (b"\xff", b"3"), (b"e", b"1")];
        let rows = rows.map(|(filter, access)| (filter.to_vec(), access.to_vec()));
        assert_eq!(texts(&rows), ["a\0e\0", "b\0", "c\0"]);
    }

    #[test]
    fn rows_of_a_user_are_bounded() {
        let rows: Vec<AccessRow> =
            (0..PACKED_MAX).map(|n| (n.to_string().into(), b"3".into())).collect();
        let kept = texts(&rows).map(|text| text.len()).iter().sum();
        assert!((PACKED_MAX - 10..=PACKED_MAX).contains(&kept), "{kept}");
    }
}
