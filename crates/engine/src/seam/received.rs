//! A received message in terms that all protocols have. What a plain delivery needs is at hand; the
//! rest is beside the payload, where only deliveries with a mark are asked for it.

use plan::Stamp;

/// Marks of a message, as bits.
pub type Marks = u8;

/// The broker has kept the message for later subscribers, or forwards the flag of its publisher.
pub const RETAINED: Marks = 1;
/// The message carries something beside its payload: properties or headers.
pub const BESIDE: Marks = 1 << 1;
/// The protocol delivers the messages of a stream in the order of their sending, without copies.
pub const ORDERED: Marks = 1 << 2;
/// The program of a flow may have published the message, as any message at the end of a flow.
pub const CARRIED: Marks = 1 << 3;

/// A received message.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// Payload of the message.
    pub payload: &'a [u8],
    /// Marks of the message.
    pub marks: Marks,
    /// The rest of the message.
    pub beside: &'a dyn Beside,
}

/// The rest of a message: answers to questions that most deliveries do not raise.
pub trait Beside {
    /// Topic of the message; `None` if it is no text.
    fn topic(&self) -> Option<&str>;

    /// Parts of the properties or headers.
    fn carried(&self) -> Carried<'_>;
}

/// Parts of the properties or headers of a message, as far as deliveries depend on them.
#[derive(Clone, Copy, Default)]
pub struct Carried<'a> {
    /// The first valid stamp in a property.
    pub stamp: Option<Stamp>,
    /// The correlation data.
    pub correlation: Option<&'a [u8]>,
    /// Topic for an answer; `None` if the message asks for none.
    pub response: Option<&'a str>,
    /// Time for which the message has left to be delivered, in seconds; `None` if it has no end.
    pub expiry_s: Option<u32>,
    /// Identifier of the subscription; `None` also if there are several.
    pub identifier: Option<u32>,
}

/// The response that a received message asks for.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its correlation data.
    pub correlation: Option<&'a [u8]>,
}

/// Receiver of the messages of one read.
pub trait Inbox {
    /// Takes the next message.
    fn take(&mut self, message: &Received<'_>) -> Next;
}

/// Continuation of a read after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next packet follows.
    More,
    /// The read rate allows no further message now.
    Pause,
    /// The client answers the message first.
    Answer,
}

impl<'a> Carried<'a> {
    /// The response that the message asks for; `None` if it asks for none.
    pub fn asks_for(&self) -> Option<Response<'a>> {
        self.response.map(|topic| Response { topic, correlation: self.correlation })
    }
}

/// The rest of a message in tests. Counts the questions.
#[cfg(test)]
#[derive(Default)]
pub struct Rest<'a> {
    pub topic: &'a str,
    pub carried: Carried<'a>,
    pub asked: std::cell::Cell<u32>,
}

#[cfg(test)]
impl Beside for Rest<'_> {
    fn topic(&self) -> Option<&str> {
        self.asked.update(|asked| asked + 1);
        Some(self.topic)
    }

    fn carried(&self) -> Carried<'_> {
        self.asked.update(|asked| asked + 1);
        self.carried
    }
}
