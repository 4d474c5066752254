//! Fuzzes the compiler of templates with any text: it compiles or refuses, and never panics. A
//! rendering of a compiled template has the announced length. The template's own source gives the
//! same rendering. Run with `cargo +nightly fuzz run template`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::{MessageFacts, Names, Place, SentAt, Stamp, StreamId, Template};

fuzz_target!(|input: (&str, u64, u32)| {
    let (source, n, number) = input;
    let Ok(template) = Template::new(source) else { return };
    assert_eq!(template.source(), source);
    let text = template.text(n, 0);
    assert_eq!(text.len(), template.rendered_bytes(n, 0));
    let stream = StreamId { publication: 0, variant: 0, client: number };
    let stamp =
        Stamp { run_tag: 1, stream, sequence: number, intended_ns: n, sent: SentAt::plain(n) };
    let chance = MessageFacts::stream(n, 0).of(u64::from(number));
    let facts = MessageFacts { number, topic_variants: 1, chance, time_ms: n, stamp };
    let mut out = Vec::new();
    template.render_message(n, 0, &facts, &mut out);
    assert!(text.len().max(out.len()) <= template.bytes_max());
    assert!(std::str::from_utf8(&out).is_ok());
    for place in [Place::Client, Place::Property, Place::Payload, Place::Json] {
        let _ = template.check(place);
    }
    for names in [Names::Topics, Names::Subjects, Names::Prefixes] {
        let _ = (template.check(Place::Topic(names)), template.check(Place::Filter(names)));
    }
    let client = template.check(Place::Client).is_ok() && template.columns().next().is_none();
    assert!(!client || template.renders(&text));
});
