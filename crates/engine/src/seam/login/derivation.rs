//! Salted passwords of SCRAM. Salting takes milliseconds: a thread of its own does it, while the
//! loop looks for results at intervals. Clients with one password, salt and number of iterations
//! share a result.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use rustc_hash::FxHashMap;

use super::Digest;

/// Salted passwords that are kept.
const SALTED_MAX: usize = 16;
/// Time between two looks for results, in nanoseconds.
const LOOK_NS: u64 = 1_000_000;
/// Passwords that the thread has at once: its next one, too, so that it need not wait for a look.
const UNDER_WAY_MAX: usize = 4;

/// A password to salt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnsaltedPassword {
    /// Password of the client.
    pub password: String,
    /// Salt of the server.
    pub salt: Vec<u8>,
    /// Number of iterations.
    pub iterations: usize,
}

/// Salted passwords, and those to salt.
pub struct Derivations {
    /// Results; `None` if a password cannot be salted.
    salted: FxHashMap<UnsaltedPassword, Option<Digest>>,
    /// Clients that wait for each password.
    clients: FxHashMap<UnsaltedPassword, Vec<u32>>,
    /// Passwords that no one has begun to salt.
    queue: VecDeque<UnsaltedPassword>,
    /// Clients whose password is salted.
    ready: VecDeque<(u32, UnsaltedPassword)>,
    /// Number of passwords that the thread has.
    under_way: usize,
    /// `None`: the loop itself salts, one password at each look.
    thread: Option<Thread>,
    /// Passwords are salted in a thread, which the first of them starts.
    apart: bool,
    /// Instant of the next look, in nanoseconds.
    look_ns: u64,
}

struct Thread {
    keys: Sender<UnsaltedPassword>,
    results: Receiver<(UnsaltedPassword, Option<Digest>)>,
}

impl Derivations {
    /// Nothing to salt. `apart`: in a thread of its own.
    pub fn new(apart: bool) -> Self {
        Self {
            salted: FxHashMap::default(),
            clients: FxHashMap::default(),
            queue: VecDeque::new(),
            ready: VecDeque::new(),
            under_way: 0,
            thread: None,
            apart,
            look_ns: 0,
        }
    }

    /// Returns `true` if a password is salted. If not, the client waits for it.
    pub fn ask(&mut self, key: &UnsaltedPassword, client: u32, now_ns: u64) -> bool {
        if self.salted.contains_key(key) {
            return true;
        }
        if self.next_ns().is_none() {
            self.look_ns = now_ns + LOOK_NS;
        }
        let clients = self.clients.entry(key.clone()).or_default();
        if clients.is_empty() {
            self.queue.push_back(key.clone());
        }
        clients.push(client);
        if self.apart && self.thread.is_none() {
            // Without a thread left, the loop salts.
            self.thread = Thread::start();
            self.apart = self.thread.is_some();
        }
        self.hand_over(|_, _| true);
        false
    }

    /// A salted password; `None` if it cannot be salted.
    pub fn salted(&self, key: &UnsaltedPassword) -> Option<&Digest> {
        self.salted.get(key)?.as_ref()
    }

    /// Instant of the next look, in nanoseconds; `None` if no client waits.
    pub fn next_ns(&self) -> Option<u64> {
        let is_idle = self.queue.is_empty() && self.ready.is_empty() && self.under_way == 0;
        if is_idle { None } else { Some(self.look_ns) }
    }

    /// Takes a client whose password is salted. `waits` is `true` for a client that still waits for
    /// the password.
    pub fn take_client(
        &mut self,
        now_ns: u64,
        waits: impl Fn(u32, &UnsaltedPassword) -> bool,
    ) -> Option<u32> {
        loop {
            while let Some((client, key)) = self.ready.pop_front() {
                if waits(client, &key) {
                    return Some(client);
                }
            }
            if self.next_ns()? > now_ns {
                return None;
            }
            let is_found = self.look(&waits);
            if self.thread.is_none() || !is_found {
                self.look_ns = now_ns.saturating_add(LOOK_NS);
            }
            if !is_found {
                return None;
            }
        }
    }

    /// Takes a result. Returns `false` if there is none.
    fn look(&mut self, waits: impl Fn(u32, &UnsaltedPassword) -> bool) -> bool {
        let result = match &self.thread {
            Some(thread) => thread.results.try_recv().ok(),
            None => self.next_key(&waits).map(|key| (key.clone(), salt(&key))),
        };
        let Some((key, digest)) = result else { return false };
        self.under_way = self.under_way.saturating_sub(1);
        self.hand_over(waits);
        if self.salted.len() == SALTED_MAX {
            self.salted.clear();
        }
        let clients = self.clients.remove(&key).unwrap_or_default();
        self.ready.extend(clients.into_iter().map(|client| (client, key.clone())));
        self.salted.insert(key, digest);
        true
    }

    /// Gives passwords to the thread.
    fn hand_over(&mut self, waits: impl Fn(u32, &UnsaltedPassword) -> bool) {
        while self.thread.is_some() && self.under_way < UNDER_WAY_MAX {
            let Some(key) = self.next_key(&waits) else { return };
            if let Some(thread) = &self.thread {
                // A thread that has ended returns nothing: its clients meet their timeout.
                let _ = thread.keys.send(key);
                self.under_way += 1;
            }
        }
    }

    /// The next password for which a client still waits.
    fn next_key(
        &mut self,
        waits: impl Fn(u32, &UnsaltedPassword) -> bool,
    ) -> Option<UnsaltedPassword> {
        loop {
            let key = self.queue.pop_front()?;
            let clients = self.clients.get(&key).into_iter().flatten();
            if clients.copied().any(|client| waits(client, &key)) {
                return Some(key);
            }
            self.clients.remove(&key);
        }
    }
}

impl Thread {
    /// `None` if the kernel has no thread left.
    fn start() -> Option<Self> {
        let (keys, asked) = mpsc::channel::<UnsaltedPassword>();
        let (found, results) = mpsc::channel();
        let derive = move || {
            for key in asked {
                let digest = salt(&key);
                if found.send((key, digest)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("scram".into()).spawn(derive);
        thread.is_ok().then_some(Self { keys, results })
    }
}

/// Hi() of RFC 5802, section 2.2.
fn salt(key: &UnsaltedPassword) -> Option<Digest> {
    let mut salted = Digest::default();
    let UnsaltedPassword { password, salt, iterations } = key;
    let sha = MessageDigest::sha256();
    pbkdf2_hmac(password.as_bytes(), salt, *iterations, sha, &mut salted).ok()?;
    Some(salted)
}
