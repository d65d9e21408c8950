//! Evaluation of agents on cases, with every trial stored.
//!
//! A [`Case`] is a question with an expectation. A [`Subject`] answers it: a levity agent with a
//! model, or a program in any language. Each answer is a [`Trial`], written to a [`Results`] folder
//! as soon as it is complete. An [`EvalReport`] counts the trials that pass a [`Check`].
//!
//! ```
//! use levity_eval::{
//!     AgentSubject, Case, EvalReport, Evaluation, Expectation, ExpectedCall, Header, OfferedTool,
//!     Results,
//! };
//! use levity_test::ScriptedModel;
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_eval::Result<()> {
//! let weather = OfferedTool::new("weather", "Tells the weather.").with_parameters(json!({
//!     "type": "object",
//!     "properties": {"city": {"type": "string"}},
//!     "required": ["city"],
//! }));
//! let brest = ExpectedCall::new("weather").with_argument("city", ["Brest", "Brest, France"]);
//! let expect = Expectation::calls([brest]);
//! let cases = [Case::new("weather-1", "Does it rain in Brest?", expect).with_tool(weather)];
//!
//! let model = ScriptedModel::new().call("weather", json!({"city": "brest"}));
//! let subject = AgentSubject::new("levity", model);
//! # let folder = tempfile::tempdir().map_err(|error| levity_eval::Error::io(".", error))?;
//! # let folder = folder.path();
//! let mut results = Results::create(folder, &Header::new("own", "levity"), &cases)?;
//! Evaluation::new().run(&subject, &mut results, |_| {}).await?;
//!
//! let report = EvalReport::new(&results, &results.check_all());
//! assert_eq!((report.total.passed, report.total.trials), (1, 1));
//! # Ok(())
//! # }
//! ```
//!
//! - An evaluation that was killed resumes where it stopped: trials in the folder are not repeated.
//! - A subject that fails yields a trial with an error, and the evaluation continues.
//! - Trials can be scored again by other checks, without calling a model.
//! - Expected answers never reach a subject: it gets the case [without its
//!   expectation](Case::question).
//!
//! This crate deliberately has no statistics library: [`wilson`] and [`mcnemar`] are a few lines
//! each.
//!
//! # Features
//!
//! The crate has no optional features.
//!
//! # Where to go next
//!
//! - Write cases: [`Case`] and [`Expectation`] in code, or one case per line with
//!   [`Evaluation::read_cases`].
//! - Evaluate something that is not a levity agent: [`CommandSubject`] for a program, [`Subject`]
//!   for your own code.
//! - Compare two models or versions: [`SubjectComparison`], which pairs their trials.
//! - Run a public benchmark: [`bfcl`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod bfcl;
mod case;
mod check;
mod error;
mod evaluation;
mod judge;
mod junit;
mod process;
mod python;
mod report;
mod results;
mod selection;
mod stats;
mod subject;
mod table;
mod tools;
mod trial;

pub use case::{Case, CaseMessage, CaseTurn, OfferedTool};
pub use check::{Check, Expectation, ExpectationCheck, ExpectedCall, Score};
pub use error::{Error, Result};
pub use evaluation::{EvalProgress, Evaluation};
pub use judge::Judge;
pub use report::{ComparisonSide, EvalReport, SubjectComparison, Tally};
pub use results::{Header, Results, Scores, TrialScore};
pub use selection::Selection;
pub use stats::{Interval, mcnemar, wilson};
pub use subject::{AgentSubject, CommandSubject, Subject};
pub use tools::{ToolHost, ToolReply, ToolSession};
pub use trial::{AnsweredTurn, Transcript, Trial, TrialCall};
