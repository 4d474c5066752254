use super::*;
use crate::model::names::Names;
use crate::text::rows::Rows;

use crate::record::sent_at::SentAt;
use crate::record::stamp::{STAMP_TEXT_BYTES, StreamId};
use proptest::prelude::*;

fn facts(number: u32, topic_variants: u32) -> MessageFacts {
    let stream = StreamId { publication: 1, variant: 2, client: 3 };
    let stamp = Stamp { run_tag: 7, stream, sequence: 4, intended_ns: 5, sent: SentAt::plain(6) };
    let chance = MessageFacts::stream(9, 1).of(3).of(u64::from(number));
    MessageFacts { number, topic_variants, chance, time_ms: 1_700_000_000_123, stamp }
}

fn message(source: &str, n: u64, variant: u32, facts: &MessageFacts) -> String {
    let mut out = Vec::new();
    Template::new(source).unwrap().render_message(n, variant, facts, &mut out);
    String::from_utf8(out).unwrap()
}

fn columns(values: &[&str]) -> HashMap<String, Arc<Column>> {
    let mut column = Column::new(&Rows { file: "f".into(), first: 10, repeat: true });
    values.iter().for_each(|value| column.push(value));
    HashMap::from([("x".to_owned(), Arc::new(column))])
}

#[test]
fn variables_are_replaced() {
    let cases = [
        ("dev-{n}", 42, 0, "dev-42"),
        ("a/{n%10}/{n/10}", 42, 0, "a/2/4"),
        ("t_{1..20}", 0, 19, "t_20"),
        ("{{n}}", 7, 0, "{n}"),
        ("", 7, 0, ""),
        ("{n}", u64::MAX, 0, "18446744073709551615"),
        ("{n}{0..3}x", 0, 2, "02x"),
        ("{red|green|blue}", 0, 1, "green"),
        ("{row.x}|{seq}", 0, 0, "|"),
    ];
    for (source, n, variant, expected) in cases {
        let template = Template::new(source).unwrap();
        assert_eq!(template.text(n, variant), expected);
        assert_eq!(template.rendered_bytes(n, variant), expected.len(), "{source}");
    }
}

#[test]
fn rows_are_bound_to_numbers_and_repeat() {
    let template = Template::new("{row.x}-{n}").unwrap();
    template.bind(&columns(&["a", "", "üß"])).unwrap();
    for (n, expected) in [(10, "a-10"), (11, "-11"), (12, "üß-12"), (13, "a-13")] {
        assert_eq!(template.text(n, 0), expected);
        assert_eq!(template.rendered_bytes(n, 0), expected.len());
    }
    assert!(template.renders("üß-7") && template.renders("a-7") && !template.renders("ü-7"));
    assert_eq!(template.bytes_max(), 4 + 1 + 20);
    let other = Template::new("{row.y}").unwrap().bind(&columns(&["a"]));
    assert_eq!(other, Err(TemplateError::Column("y".into())));
}

#[test]
fn a_message_renders_its_number_time_and_stamp() {
    let facts = facts(17, 1);
    assert_eq!(message("{seq} {time} {n}", 5, 0, &facts), "17 1700000000123 5");
    let text = message("{{\"s\": \"{stamp}\"}}", 5, 0, &facts);
    assert_eq!(Stamp::find(text.as_bytes()), Some(facts.stamp));
    assert_eq!(text.len(), 9 + STAMP_TEXT_BYTES);
}

#[test]
fn a_range_of_a_payload_follows_its_topic_or_the_message_number() {
    assert_eq!(message("{1..20}", 0, 4, &facts(31, 20)), "5");
    assert_eq!(message("{1..20}", 0, 4, &facts(31, 19)), "12");
    assert_eq!(message("{1..20} {0..1}", 0, 0, &facts(31, 1)), "12 1");
}

#[test]
fn drawn_values_lie_between_both_ends_and_reach_them() {
    let draws = |source: &str| -> std::collections::BTreeSet<String> {
        (0..400).map(|number| message(source, 0, 0, &facts(number, 1))).collect()
    };
    assert_eq!(draws("{random 1..6}").into_iter().collect::<String>(), "123456");
    assert_eq!(draws("{a|b|c}").into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    let expected = ["-0.1", "-0.2", "0.0", "0.1"];
    assert_eq!(draws("{random -0.2..0.1}").into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(draws("{random 7.000..7}").into_iter().collect::<String>(), "7.000");
    for drawn in draws("{random -999999999999999999..999999999999999999}") {
        assert!(drawn.parse::<i64>().unwrap().abs() < 1_000_000_000_000_000_000);
    }
    let hex = draws("{hex 33}");
    assert_eq!(hex.len(), 400);
    let is_hex = |text: &String| text.len() == 33 && text.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(hex.iter().all(is_hex), "{hex:?}");
}

#[test]
fn each_place_of_a_template_draws_its_own_value() {
    let text = message("{hex 16} {hex 16}", 0, 0, &facts(0, 1));
    let (one, other) = text.split_once(' ').unwrap();
    assert_ne!(one, other);
    assert_eq!(text, message("{hex 16} {hex 16}", 0, 0, &facts(0, 1)));
    assert_ne!(text, message("{hex 16} {hex 16}", 0, 0, &facts(1, 1)));
}

#[test]
fn ranges_and_choices_count_their_values() {
    for (source, variants) in [("t_{1..20}", 20), ("t", 1), ("{a|b|a}", 3), ("{n}", 1)] {
        assert_eq!(Template::new(source).unwrap().variants(), variants, "{source}");
    }
}

#[test]
fn a_template_without_variables_is_fixed() {
    for (source, expected) in
        [("a", true), ("", true), ("{{n}}", true), ("a{n}", false), ("{row.x}", false)]
    {
        assert_eq!(Template::new(source).unwrap().is_fixed(), expected, "{source}");
    }
}

#[test]
fn errors_name_the_wrong_part_of_a_template() {
    use TemplateError::{Brace, Variable};
    for (source, brace) in [("{", '{'), ("a}", '}'), ("{n", '{'), ("}}}", '}')] {
        assert_eq!(Template::new(source).unwrap_err(), Brace(brace), "{source}");
    }
    let variables = [
        "",
        "m",
        "n%0",
        "né",
        "5..1",
        "a|",
        "|",
        "a||b",
        "row.",
        "rows.x",
        "hex",
        "hex 0",
        "hex 4097",
        "hex -1",
        "random 2..1",
        "random 1",
        "random 1..",
        "random .5..1",
        "random 1.0..2.",
        "random +1..2",
        "random 1..1234567890123456789",
        "seq ",
        " time",
        "stamp 1",
        "+1..+2",
        "n%+1",
        "n{n",
    ];
    for source in variables {
        let error = Template::new(&format!("{{{source}}}")).unwrap_err();
        assert_eq!(error, Variable(source.into()));
    }
}

#[test]
fn variables_without_a_value_at_their_place_are_refused() {
    let check = |source: &str, place| Template::new(source).unwrap().check(place);
    for source in ["{n}{n%2}{n/2}", "{row.x}"] {
        for place in [Place::Client, Place::Topic(Names::Topics), Place::Payload] {
            assert_eq!(check(source, place), Ok(()), "{source} in {place:?}");
        }
    }
    for source in ["{1..2}", "{a|b}"] {
        assert_eq!(check(source, Place::Topic(Names::Topics)), Ok(()), "{source}");
        assert!(matches!(check(source, Place::Client), Err(TemplateError::Misplaced(..))));
    }
    for source in ["{seq}", "{time}", "{stamp}", "{hex 2}", "{random 1..2}"] {
        assert_eq!(check(source, Place::Json), Ok(()), "{source}");
        for place in [Place::Client, Place::Topic(Names::Topics), Place::Filter(Names::Topics)] {
            assert!(matches!(check(source, place), Err(TemplateError::Misplaced(..))), "{source}");
        }
    }
    assert_eq!(check("{1..2}{a|b}", Place::Topic(Names::Topics)), Err(TemplateError::SecondRange));
    assert_eq!(check("{1..2}{a|b}", Place::Payload), Ok(()));
    let split = TemplateError::Value("b/c".into(), "{a|b/c}".into(), "/, + and #");
    assert_eq!(check("{a|b/c}", Place::Filter(Names::Topics)), Err(split));
    assert_eq!(check("{a|b/c}", Place::Topic(Names::Topics)), Ok(()));
    for wrong in ["{a|b//c}", "{a|/b}", "{a|b/#}"] {
        let checked = check(wrong, Place::Topic(Names::Topics));
        assert!(matches!(checked, Err(TemplateError::Value(..))), "{wrong}");
    }
    let row = Template::new("t/{row.x}").unwrap();
    row.bind(&columns(&["a", "b+"])).unwrap();
    let wild = TemplateError::Value("b+".into(), "{row.x}".into(), "/, + and #");
    assert_eq!(row.check(Place::Filter(Names::Topics)), Err(wild));
}

#[test]
fn a_text_is_recognised_as_a_rendering() {
    let template = Template::new("a/{n}5/t_{1..20}").unwrap();
    assert!(template.renders("a/125/t_3"));
    for other in ["a/12/t_3", "a/125/t_", "a/125/t_3/x", "", "a/x5/t_3"] {
        assert!(!template.renders(other), "{other}");
    }
    let choice = Template::new("{a|ab}/{n}").unwrap();
    assert!(choice.renders("ab/1") && choice.renders("a/1") && !choice.renders("b/1"));
}

#[test]
fn a_filter_level_holds_one_variable() {
    assert!(Template::new("a/{n}/x{1..3}y/#").unwrap().check(Place::Filter(Names::Topics)).is_ok());
    assert_eq!(
        Template::new("a/{n}-{n%2}").unwrap().check(Place::Filter(Names::Topics)),
        Err(TemplateError::Level("{n}-{n%2}".into()))
    );
}

proptest! {
    #[test]
    fn renderings_have_the_computed_length(
        source in "[a{}n%/.0-9|ü]{0,12}|\\{random [0-9.]{1,6}\\.\\.9\\}|\\{hex [0-9]{1,2}\\}",
        n: u64,
        number: u32,
    ) {
        let Ok(template) = Template::new(&source) else { return Ok(()) };
        let text = template.text(n, 0);
        prop_assert_eq!(text.len(), template.rendered_bytes(n, 0));
        let said = message(&source, n, 0, &facts(number, 1));
        prop_assert!(text.len().max(said.len()) <= template.bytes_max());
    }
}
