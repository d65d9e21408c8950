//! The tool for the current time.
//!
//! It reads `ToolCx::started`, which the runtime sets, and no clock. So a run that is repeated from
//! its journal gets the same answer, and tests need no real time.

use async_trait::async_trait;
use levity_core::{Hints, Timestamp, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Value, json};
use std::time::Duration;

/// The tool `now`, which returns the current date and time.
///
/// ```
/// use levity_core::{Timestamp, Tool, ToolCx};
/// use levity_builtin_tools::Now;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ToolError> {
/// let mut cx = ToolCx::detached();
/// cx.started = Timestamp::from_millis(951_826_500_000);
/// let output = Now::new().call(json!({"offset": "+02:00"}), &cx).await?;
/// assert_eq!(output.value.unwrap(), json!({
///     "time": "2000-02-29T14:15:00+02:00", "weekday": "Tuesday", "unix": 951_826_500,
/// }));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A call fails with `InvalidArgs` if `offset` is not of the form `+02:00`. Offsets of 15 hours
/// and more are refused by the schema, which the dispatcher checks.
#[derive(Clone, Debug)]
pub struct Now(ToolSpec);

impl Now {
    /// Creates the tool `now`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ToolError> {
    /// use levity_builtin_tools::Now;
    /// use levity_core::{Timestamp, Tool, ToolCx};
    /// use serde_json::json;
    ///
    /// let mut cx = ToolCx::detached();
    /// cx.started = Timestamp::from_millis(0);
    /// let value = Now::new().call(json!({}), &cx).await?.value.expect("a value");
    /// assert_eq!(value["time"], "1970-01-01T00:00:00+00:00");
    /// assert_eq!(value["weekday"], "Thursday");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new() -> Self {
        let spec = ToolSpec::new("now", "Tells the current date, time and weekday.")
            .with_hints(Hints::new().read_only())
            .with_input(json!({
                "type": "object",
                "properties": {"offset": {
                    "type": "string",
                    "pattern": "^[+-](0[0-9]|1[0-4]):[0-5][0-9]$",
                    "description": "The distance from UTC, such as +02:00; UTC by default.",
                }},
                "additionalProperties": false,
            }))
            .with_output(json!({
                "type": "object",
                "properties": {
                    "time": {"type": "string", "description": "RFC 3339."},
                    "weekday": {"type": "string"},
                    "unix": {"type": "integer", "description": "Seconds since the start of 1970."},
                },
                "required": ["time", "weekday", "unix"],
                "additionalProperties": false,
            }));
        Self(spec)
    }
}

impl Default for Now {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Tool for Now {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let offset = args
            .get("offset")
            .and_then(Value::as_str)
            .unwrap_or("+00:00");
        let Some(minutes) = minutes(offset) else {
            return Err(ToolError::new(
                ToolErrorKind::InvalidArgs,
                "`offset` is invalid; write it like +02:00",
            ));
        };
        let shift = Duration::from_secs(minutes.unsigned_abs() * 60);
        let there = if minutes < 0 {
            Timestamp::from_millis(
                cx.started
                    .as_millis()
                    .saturating_sub(shift.as_millis() as u64),
            )
        } else {
            cx.started.after(shift)
        };
        // This is RFC 3339 up to the seconds, followed by the offset instead of `Z`.
        let time: String = there
            .to_string()
            .split('.')
            .next()
            .unwrap_or_default()
            .to_owned()
            + offset;
        let days = there.as_millis() / 86_400_000;
        // The first day of 1970 was a Thursday.
        let weekday = WEEKDAYS[(days + 3) as usize % 7];
        let unix = cx.started.as_millis() / 1000;
        Ok(ToolOutput::value(
            json!({"time": time, "weekday": weekday, "unix": unix}),
        ))
    }
}

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// Parses an offset such as `-03:30` into minutes.
///
/// The schema has validated the ranges already; a direct caller may pass any number of hours.
fn minutes(offset: &str) -> Option<i64> {
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let all = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
    match offset.as_bytes().first()? {
        b'+' => Some(all),
        b'-' => Some(-all),
        _ => None,
    }
}
