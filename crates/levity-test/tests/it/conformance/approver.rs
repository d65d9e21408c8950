use std::future::pending;

use async_trait::async_trait;
use levity_core::{Approver, Ask, Decision};
use levity_test::conformance;
use serde_json::json;
use tokio::sync::Mutex;

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    NeverAnswers,
    PanicsOnJunk,
    OneAtATime,
    EditsToNothing,
    StaysTaken,
}

#[derive(Default)]
struct Person {
    flaw: Flaw,
    desk: Mutex<bool>,
}

#[async_trait]
impl Approver for Person {
    async fn decide(&self, ask: &Ask) -> Decision {
        let desk = self.desk.lock().await;
        let mut held = None;
        match self.flaw {
            Flaw::NeverAnswers => pending().await,
            Flaw::PanicsOnJunk => assert!(ask.call.args.is_object(), "what is that"),
            Flaw::EditsToNothing => return Decision::edit(json!(null)),
            Flaw::OneAtATime => held = Some(desk),
            Flaw::StaysTaken if *desk => pending().await,
            Flaw::StaysTaken => {
                // It is left behind when the question is dropped.
                let mut desk = desk;
                *desk = true;
                drop(desk);
                tokio::task::yield_now().await;
                *self.desk.lock().await = false;
                return Decision::Allow;
            }
            Flaw::None => drop(desk),
        }
        tokio::task::yield_now().await;
        drop(held);
        Decision::deny("no")
    }
}

#[test]
fn approver_suite_accepts_correct_approver() {
    block_on(conformance::approver(Person::default));
}

#[test]
fn approver_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        refuses(
            conformance::approver(|| Person {
                flaw,
                ..Person::default()
            }),
            promise,
        );
    };
    check(
        Flaw::NeverAnswers,
        "approver: every question is answered; there was no answer",
    );
    check(
        Flaw::PanicsOnJunk,
        "approver: every question is answered; it panicked: what is that",
    );
    check(
        Flaw::EditsToNothing,
        "approver: new arguments are an object",
    );
    check(
        Flaw::OneAtATime,
        "approver: a pending question does not block others",
    );
    check(
        Flaw::StaysTaken,
        "approver: a pending question does not block others",
    );
}
