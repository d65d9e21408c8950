//! Random sessions and random bytes.

use super::parse::SOURCE;
use super::*;

/// Generates a step with all possible attributes.
fn any_step() -> impl Strategy<Value = Step> {
    let name = "[a-c]{1,2}";
    let words = prop::collection::vec(name.prop_map(|name| name), 0..3);
    let odd = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        2..5_u32,
        "\\PC{0,12}",
    );
    ("\\PC{1,20}", "\\PC{0,12}", words.clone(), words, odd).prop_map(
        |(id, text, reads, writes, odd)| {
            let (fan, budget, when, fallback, attempts, code) = odd;
            let mut step = Step::new(id, text.clone())
                .description(text.clone())
                .prompt(text)
                .reads(reads)
                .writes(writes);
            if fan {
                step = step
                    .map(FanOut::over("list").first(2).reducer(Reducer::Concat))
                    .join(Join::Any);
            }
            if budget {
                let budget = Budget::new()
                    .tokens(5)
                    .money(levity_core::Money::from_nanos(7_000_000))
                    .tool_calls(1);
                step = step
                    .budget(budget)
                    .timeout(std::time::Duration::from_millis(1_500))
                    .input("k", json!({"v": [code]}));
            }
            if when {
                step = step
                    .when(Condition::parse("a == 1").unwrap())
                    .on_failure(OnFailure::Continue);
            }
            if fallback {
                step = step
                    .retry(Retry::attempts(attempts))
                    .on_failure(OnFailure::Fallback("z".into()));
            }
            step
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_plan_and_result_is_read_back(
        steps in prop::collection::vec((any_step(), any_json(), 0..4_u8), 0..6),
        goal in ".{0,30}",
        given in any_json(),
    ) {
        let mut plan = Plan::new().given("given", given);
        let mut stream = Stream::new("r", &goal);
        let mut notice = Vec::new();
        for (at, (mut step, value, end)) in steps.into_iter().enumerate() {
            step.id = format!("{}{at}", step.id).into();
            if at > 0 {
                step = step.after(plan.steps[at - 1].id.clone());
            }
            notice.push((step.clone(), value, end));
            plan = plan.step(step);
        }
        let edges: Vec<(&str, &str)> = plan
            .steps
            .windows(2)
            .map(|two| (two[0].id.as_str(), two[1].id.as_str()))
            .collect();
        stream.planned(&plan, &edges);
        for (step, value, end) in &notice {
            let writes: serde_json::Map<String, Value> = step
                .writes
                .iter()
                .map(|name| (name.to_string(), value.clone()))
                .collect();
            match end {
                0 => stream.wait(3).completed(step.id.as_str(), writes.into()),
                1 => stream.wait(3).failed(step.id.as_str(), &value.to_string()),
                _ => stream.started(step.id.as_str(), 4),
            };
        }
        let dir = tempfile::tempdir().unwrap();
        let writer = SessionFolder::open(dir.path()).writer(&stream.run);
        stream.events.iter().for_each(|event| writer.apply(event));
        let path = writer.path().unwrap();
        let session = Session::parse(&fs::read(&path).unwrap()).unwrap();
        prop_assert_eq!(&**session.plan(), &plan);
        prop_assert_eq!(&session.query, &goal);
        let done = session.starting_plan().completed;
        let expected: Vec<_> = notice.iter().filter(|(_, _, end)| *end == 0).collect();
        prop_assert_eq!(done.len(), expected.len());
        for (done, (step, value, _)) in done.iter().zip(expected) {
            prop_assert_eq!(&done.step, &step.id);
            prop_assert!(
                done.writes
                    .iter()
                    .all(|one| one.value == *value && done.output[&*one.name] == *value)
            );
        }
    }

    #[test]
    fn any_bytes_are_parsed_or_rejected(
        at in 0..2_000_usize,
        with in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = SOURCE.as_bytes().to_vec();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = with }
        let _ = Session::parse(&bytes)
            .map(|session| (session.starting_plan(), session.to_view().summary()));
    }
}
