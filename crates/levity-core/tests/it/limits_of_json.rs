//! Checks that input accepted from a model survives the journal, also at the limits of JSON.

use levity_core::{
    EffectId, Entry, Message, Outcome, Part, Record, Response, Role, Timestamp, ToolCall,
};
use proptest::prelude::*;
use serde_json::Value;

/// Writes and reads a record of a reply that calls a tool with these arguments.
fn survives_journal(args: &str) -> Result<bool, String> {
    let call = Part::ToolCall(ToolCall::from_text("c1", "add", args));
    let outcome = Outcome::Model(Ok(Response::new(Message::new(Role::Assistant, [call]))));
    let entry = Entry::finished(EffectId::new(1), outcome);
    let record = Record::new(0, Timestamp::default(), entry);
    let line = serde_json::to_string(&record).map_err(|error| error.to_string())?;
    let read: Record = serde_json::from_str(&line).map_err(|error| error.to_string())?;
    Ok(read == record)
}

#[test]
fn deep_arguments_survive_the_journal() {
    for depth in [1, 20, 60, 100, 120, 127, 128, 1000, 100_000] {
        let args = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(survives_journal(&args), Ok(true), "{depth} deep");
    }
}

proptest! {
    #[test]
    fn numbers_survive_the_journal(bits in any::<u64>(), small in any::<i64>()) {
        let float = f64::from_bits(bits);
        if float.is_finite() {
            let text = Value::from(float).to_string();
            prop_assert_eq!(survives_journal(&text), Ok(true), "{}", text);
        }
        prop_assert_eq!(survives_journal(&small.to_string()), Ok(true));
        prop_assert_eq!(survives_journal(&bits.to_string()), Ok(true));
    }

    #[test]
    fn any_text_is_accepted_as_arguments(text in "\\PC{0,40}|[\\[\\]{}\",:0-9a-z \\n]{0,40}") {
        prop_assert_eq!(survives_journal(&text), Ok(true));
        let call = ToolCall::from_text("c1", "add", &text);
        let is_json = text.trim().is_empty() || serde_json::from_str::<Value>(&text).is_ok();
        prop_assert_eq!(call.raw.is_none(), is_json);
        prop_assert!(call.raw.is_none_or(|raw| raw == text));
    }
}
