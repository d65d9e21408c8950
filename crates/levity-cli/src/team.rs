//! A session with a team: one goal after the other.
//!
//! `levity team` reads goals line by line. For each goal, the team makes a plan and carries it out,
//! as `levity plan` does, and then waits for the next goal. Three things connect the goals of a
//! session:
//!
//! - The planner and the agents know the earlier goals and their answers, as the variable
//!   `earlier_goals`. With `--memory`, they are stored as a conversation, which a later call
//!   continues.
//! - With `--recall`, answers of all earlier sessions are searched for each goal, and those that
//!   match become the variable `recalled`.
//! - `/fork` repeats steps of the last goal with the results of all others.
//!
//! Lines that begin with `/` are commands. While a run works, a command follows an empty line; see
//! `crate::drive`. A failed goal does not end the session. Exit codes: 0 if all goals were reached,
//! 1 if one was not, 2 for a wrong call, 130 for Ctrl-C at the prompt; Ctrl-C during a run cancels
//! only that goal.

mod earlier;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::Usage;
use levity::core::text::is_blank;
use levity::dag::{StepId, Team, TeamInput};
use levity::observe::{PlanView, TreeOptions, one_line};
use levity::prelude::*;

use crate::agent::Common;
use crate::given::{Given, GivenArgs};
use crate::input::Input;
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::McpServers;
use crate::memory;
use crate::plan::{self, AnswerForm, PlanDisplay, SessionStore, TeamShape, ViewKind};
use crate::terminal::{chain, note, print_text, report_error};

use earlier::EarlierGoals;

/// The exit code of a session that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The commands of a session, as `/help` shows them.
const HELP: &str = "Type a goal, or one of these commands:
  /cost            the time, tokens and money of all goals of this session
  /tree            the steps of the last goal
  /fork [STEP..]   repeat these steps of the last goal, and all that depend on them
  /help            this list
  /quit            end the session
While a run works, press Enter to type /pause, /resume, /cost, /tree or /cancel.
";

/// The arguments of `levity team`.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct TeamArgs {
    #[command(flatten)]
    given: GivenArgs,
    /// Display of each run: by default, a live tree on a terminal and lines elsewhere.
    #[arg(long, value_enum, default_value_t = ViewKind::Auto)]
    view: ViewKind,
    /// Store the session of each goal in this folder, so that you can inspect, resume and fork it.
    #[arg(long, value_name = "DIR")]
    sessions: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Store the goals and answers as a conversation in this folder, SQLite file (`*.db`) or JSON
    /// file (`*.json`, one conversation).
    #[arg(long, value_name = "PATH")]
    memory: Option<PathBuf>,
    /// Conversation to continue, or to start under this name; a new one by default.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::parse_name)]
    conversation: Option<String>,
    /// SQLite file (`*.db`) in which answers are stored, and found again for later goals.
    #[arg(long, value_name = "FILE")]
    recall: Option<PathBuf>,
    #[command(flatten)]
    shape: TeamShape,
    /// Maximum number of steps that run at the same time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// Works on goals until the input ends. Returns 0 if all goals were reached, 1 if one was not, 2
/// for an invalid call, 130 after Ctrl-C at the prompt.
pub(crate) async fn team(args: TeamArgs) -> ExitCode {
    match TeamSession::open(&args).await {
        Ok((session, mcp_servers)) => mcp_servers.end(session.work().await).await,
        Err(problem) => report_error(&problem, 2),
    }
}

/// An open session with a team.
struct TeamSession<'a> {
    args: &'a TeamArgs,
    team: Team,
    given: Given,
    store: Option<SessionStore>,
    earlier: EarlierGoals,
    logs: Arc<Logs>,
    costs: Vec<GoalCost>,
    /// The view of the last run, and its goal.
    last: Option<(PlanView, String)>,
}

/// The cost of one goal.
struct GoalCost {
    goal: String,
    usage: Usage,
    /// The time from the goal to its answer, with the time for questions.
    seconds: f64,
}

impl<'a> TeamSession<'a> {
    /// Opens the stores that the options name, and starts the MCP servers. The caller stops them at
    /// the end of the session.
    async fn open(args: &'a TeamArgs) -> Result<(Self, McpServers), String> {
        let given = args.given.open()?;
        let logs = Arc::new(args.common.logs.open()?);
        let store = match &args.sessions {
            Some(folder) => Some(SessionStore::open(folder, args.trust)?),
            None => None,
        };
        let runtime = match &store {
            Some(store) => Runtime::new().with_journal(store.journal.clone()),
            None => Runtime::new(),
        };
        let earlier = EarlierGoals::open(
            args.memory.as_deref(),
            args.conversation.as_deref(),
            args.recall.as_deref(),
            &runtime,
        )
        .await?;
        let sessions = store.as_ref().map(|store| &store.sessions);
        let common = &args.common;
        let (team, mcp_servers) = args
            .shape
            .build(common, args.max_parallel, &given, runtime, sessions)
            .await?;
        args.shape.print_missing();
        let session = Self {
            args,
            team,
            given,
            store,
            earlier,
            logs,
            costs: Vec::new(),
            last: None,
        };
        Ok((session, mcp_servers))
    }

    /// Reads goals and commands. The same input answers questions of the runs.
    async fn work(mut self) -> ExitCode {
        let (mut input, mut code) = (Input::new(), ExitCode::SUCCESS);
        if Input::is_terminal() {
            note("type a goal, or /help");
        }
        loop {
            let line = tokio::select! {
                line = input.line("> ") => line,
                _ = tokio::signal::ctrl_c() => return ExitCode::from(INTERRUPTED),
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return code,
                Err(error) => {
                    return report_error(&format!("cannot read the standard input: {error}"), 1);
                }
            };
            let reached = match line.trim() {
                line if is_blank(line) => Ok(true),
                "/quit" | "/exit" => return code,
                command if command.starts_with('/') => self.command(command, &mut input).await,
                goal => self.work_on_goal(goal, &mut input).await,
            };
            match reached {
                Ok(true) => {}
                Ok(false) => code = ExitCode::FAILURE,
                Err(Interrupted) => return ExitCode::from(INTERRUPTED),
            }
        }
    }

    /// Executes a command, and returns `false` if it failed.
    async fn command(&mut self, line: &str, input: &mut Input) -> Result<bool, Interrupted> {
        let mut words = line.split_whitespace();
        match (words.next().unwrap_or_default(), &self.last) {
            ("/help", _) => print_text(HELP),
            ("/cost", _) => print_text(&self.cost()),
            ("/tree", Some((view, _))) => print_text(&view.tree(TreeOptions::new())),
            ("/tree" | "/fork", None) => return Ok(complain("no goal has been worked on yet")),
            ("/fork", Some(_)) => {
                let steps: Vec<_> = words.map(StepId::from).collect();
                return self.fork(&steps, input).await;
            }
            ("/pause" | "/resume" | "/cancel", _) => {
                return Ok(complain(
                    "no run is working; press Enter during a run to type this",
                ));
            }
            (command, _) => {
                let text = format!("unknown command `{command}`; `/help` lists the commands");
                return Ok(complain(&text));
            }
        }
        Ok(true)
    }

    /// Makes a plan for a goal and carries it out. Returns `true` if the goal was reached.
    async fn work_on_goal(&mut self, goal: &str, input: &mut Input) -> Result<bool, Interrupted> {
        let mut given = TeamInput::from(goal)
            .files(self.given.files.iter())
            .media(self.given.images.iter().cloned());
        for (name, value) in self.earlier.variables(goal).await {
            given = given.given(name, value);
        }
        self.run(goal, given, input).await
    }

    /// Repeats steps of the last goal in a new run.
    async fn fork(&mut self, steps: &[StepId], input: &mut Input) -> Result<bool, Interrupted> {
        match self.starting_plan(steps).await {
            Ok((goal, given)) => self.run(&goal, given, input).await,
            Err(problem) => Ok(complain(&problem)),
        }
    }

    /// Returns the goal of the last run, and its plan with the results of all but these steps.
    async fn starting_plan(&self, steps: &[StepId]) -> Result<(String, TeamInput), String> {
        let (Some(store), Some((view, goal))) = (&self.store, &self.last) else {
            return Err(
                "`/fork` needs stored sessions; start `levity team` with `--sessions DIR`"
                    .to_owned(),
            );
        };
        let run = view.run().ok_or("the last goal has no run")?;
        let session = store.sessions.load(run.as_str()).await;
        let session = session.map_err(|error| chain(&error))?;
        let plan = session
            .starting_plan_repeating(steps)
            .map_err(|error| chain(&error))?;
        let given = TeamInput::from(plan)
            .goal(goal.clone())
            .media(self.given.images.iter().cloned());
        Ok((goal.clone(), given))
    }

    /// Runs the team, shows the run and prints its answer. Returns `true` if the goal was reached.
    async fn run(
        &mut self,
        goal: &str,
        given: TeamInput,
        input: &mut Input,
    ) -> Result<bool, Interrupted> {
        let display = PlanDisplay::for_session(self.args.view, self.logs.clone());
        let run = self.team.run(given).on_event(display.watcher()).try_start();
        let run = match run {
            Ok(run) => run,
            Err(error) => return Ok(complain(&chain(&error))),
        };
        let outcome = plan::drive(run, display, self.team.runtime(), input).await;
        let form = match self.args.view {
            ViewKind::Json => AnswerForm::InEvents,
            _ => AnswerForm::Text,
        };
        plan::print_answer(&outcome, form, self.args.view == ViewKind::None);
        let totals = outcome.view.totals();
        self.costs.push(GoalCost {
            goal: goal.to_owned(),
            usage: totals.usage,
            seconds: totals.took.as_secs_f64(),
        });
        self.last = Some((outcome.view, goal.to_owned()));
        match outcome.result {
            None => Err(Interrupted),
            Some(Err(_)) => Ok(false),
            Some(Ok(answer)) => {
                self.earlier.add(goal, &answer.to_markdown()).await;
                Ok(true)
            }
        }
    }

    /// Formats the costs: one line for each goal, and the total.
    fn cost(&self) -> String {
        let line = |number: &str, cost: &GoalCost| {
            let goal = one_line(&cost.goal, 50);
            format!(
                "{number:>5}  {:>7.1} s  {}  {goal}\n",
                cost.seconds, cost.usage
            )
        };
        let mut total = GoalCost {
            goal: format!(
                "{} in this session",
                crate::terminal::counted(self.costs.len() as u64, "goal",)
            ),
            usage: Usage::default(),
            seconds: 0.0,
        };
        let mut text = String::new();
        for (number, cost) in (1_usize..).zip(&self.costs) {
            text += &line(&number.to_string(), cost);
            total.usage += cost.usage;
            total.seconds += cost.seconds;
        }
        text + &line("total", &total)
    }
}

/// The user left the command in the middle of a run.
struct Interrupted;

/// Prints a problem that does not end the session, and returns `false`.
fn complain(problem: &str) -> bool {
    report_error(problem, 1);
    false
}
