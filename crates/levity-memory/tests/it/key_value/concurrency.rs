//! Concurrent and interrupted operations.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_never_mix_saves() {
    let store = Arc::new(racing());
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let memory = memory_over(store.clone());
        tasks.spawn(async move {
            let id = ConversationId::new("a");
            for number in 0..25 {
                let save = format!("{writer} {number}");
                loop {
                    let end = memory.load(&id, 0).await.unwrap().end;
                    let messages = (0..3).map(|_| Message::user(save.clone()));
                    match memory
                        .save(&id, &ConversationChange::at(end).with_messages(messages))
                        .await
                    {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error.kind(), MemoryErrorKind::Moved, "{error}"),
                    }
                }
                if number % 5 == 4 {
                    memory.trim(&id, number).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let memory = memory_over(store);
    let read = memory.read(&"a".into(), 0, usize::MAX).await.unwrap();
    assert_eq!((read[0].0, read.last().unwrap().0), (24, 4 * 25 * 3 - 1));
    let words: Vec<_> = read
        .iter()
        .map(|(_, message)| message.text().into_owned())
        .collect();
    for save in words.chunks(3) {
        assert!(save.iter().all(|word| *word == save[0]), "{save:?}");
    }
}

/// Returns the messages of a save, distinguishable from all others and countable.
fn tagged(save: u64, count: u64) -> impl Iterator<Item = Message> {
    (0..count)
        .map(move |number| Message::user(format!("{save} {number} {count} {}", "x".repeat(700))))
}

/// Checks that every save is whole, except for trimmed messages.
fn check_whole(read: &[(u64, Arc<Message>)]) {
    let text = |at: usize| read[at].1.text().into_owned();
    let numbers = |text: &str| -> Vec<u64> {
        text.split(' ')
            .take(3)
            .map(|word| word.parse().unwrap())
            .collect()
    };
    for at in 0..read.len() {
        let here = numbers(&text(at));
        assert!(
            read[at].0 == read[0].0 + at as u64,
            "positions follow one another"
        );
        match read.get(at + 1).map(|_| numbers(&text(at + 1))) {
            Some(next) if here[1] + 1 < here[2] => {
                assert_eq!(next, [here[0], here[1] + 1, here[2]]);
            }
            Some(next) => assert_eq!(next[1], 0),
            None => assert_eq!(here[1] + 1, here[2]),
        }
    }
}

/// Saves, trims or forgets, depending on `random`.
async fn random_operation(memory: &dyn MemoryStore, number: u64, random: u64) {
    let id = ConversationId::new("a");
    let end = match memory.load(&id, 3).await {
        Ok(found) => found.end,
        Err(error) => panic!("{error}"),
    };
    let done = match random % 16 {
        0 => memory.forget(&id).await.map(drop),
        1 | 2 => memory.trim(&id, end.saturating_sub(random / 16 % 20)).await,
        3..6 => memory
            .read(&id, end.saturating_sub(random / 16 % 40), usize::MAX)
            .await
            .map(|read| {
                let whole = read
                    .iter()
                    .skip_while(|(_, message)| message.text().split(' ').nth(1) != Some("0"));
                check_whole(&whole.cloned().collect::<Vec<_>>());
            }),
        _ => {
            memory
                .save(
                    &id,
                    &ConversationChange::at(end)
                        .with_messages(tagged(number, 1 + random / 16 % 20)),
                )
                .await
        }
    };
    if let Err(error) = done {
        assert_eq!(error.kind(), MemoryErrorKind::Moved, "{error}");
    }
}

#[test]
fn random_operations_and_dropped_futures_keep_saves_whole() {
    for seed in 0..100 {
        let world = ManualWorld::new().with_seed(seed);
        let map = Arc::new(Map::default());
        let memory = |world: &ManualWorld| {
            let lose = move |count: usize| {
                if count % 11 == 5 {
                    Fault::Lose
                } else {
                    Fault::Yield
                }
            };
            memory_over(FaultyStore::new(map.clone(), lose)).with_world(world.clone())
        };
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut number = 0;
        let mut begin = || {
            number += 1;
            let (memory, number, random) = (memory(&world), number, world.random());
            Box::pin(async move { random_operation(&memory, number, random).await })
        };
        let mut futures: Vec<_> = (0..4).map(|_| begin()).collect();
        for _ in 0..600 {
            let at = (world.random() % 4) as usize;
            // A future that is dropped half-way represents a process that ends.
            if futures[at].as_mut().poll(&mut cx).is_ready() || world.random().is_multiple_of(50) {
                futures[at] = begin();
            }
        }
        drop(futures);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (memory, id) = (memory(&world), ConversationId::new("a"));
            let read = memory.read(&id, 0, usize::MAX).await.unwrap();
            check_whole(&read);
            memory.forget(&id).await.unwrap();
            assert_eq!(map.keys(), Vec::<String>::new(), "seed {seed}");
        });
    }
}
