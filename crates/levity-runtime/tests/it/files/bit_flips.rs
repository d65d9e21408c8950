//! Damaged files: a change of any bit of a journal is reported.

use std::fs;

use levity_core::{
    EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal, JournalErrorKind, Record, Status,
};

use super::{Folder, opened, result, run, sealed, unsealed, write};

/// Writes a run of a few short records; one of them has a text in `bodies/`.
async fn short(folder: &Folder) -> Vec<Record> {
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let note = EffectNote::new(EffectKind::Tool, "pay", EffectClass::AtMostOnce);
    let started = Entry::Started {
        effect: EffectId::new(0),
        note,
    };
    let entries = vec![
        opened(),
        started,
        result("abc", None),
        result("a b, c", None),
        Entry::Ended(Status::Complete),
    ];
    let records = write(&folder.journal(), entries).await;
    // A real one would be long.
    let text = fs::read_to_string(folder.file()).unwrap();
    let aside = |line: &str| match line.contains("\"abc\"") {
        true => {
            let line = unsealed(line).replace("\"abc\"", &format!("{{\"$body\":\"{ABC}\"}}"));
            sealed(&format!("{{\"$aside\":{line}}}")) + "\n"
        }
        false => format!("{line}\n"),
    };
    fs::write(folder.file(), text.lines().map(aside).collect::<String>()).unwrap();
    fs::create_dir_all(folder.0.join("bodies")).unwrap();
    fs::write(folder.0.join("bodies").join(ABC), "abc").unwrap();
    assert_eq!(folder.journal().read(&run()).await.unwrap(), records);
    records
}

#[tokio::test]
async fn flipped_bit_of_file_is_detected_and_file_unchanged() {
    let folder = Folder::new();
    let journal = folder.journal();
    short(&folder).await;
    let body = fs::read_dir(folder.0.join("bodies"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for file in [folder.file(), body] {
        let whole = fs::read(&file).unwrap();
        // `format.rs` tests every bit of a file; here, threads and the disk take part.
        for bit in (0..8 * whole.len()).step_by(11) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &flipped).unwrap();
            let (byte, was) = (bit / 8, char::from(whole[bit / 8]));
            match journal.read(&run()).await {
                Ok(records) => {
                    panic!(
                        "bit {bit}, in byte {byte} (`{was}`): {} records were read",
                        records.len()
                    )
                }
                Err(error) => {
                    let kind = error.kind();
                    let known =
                        matches!(kind, JournalErrorKind::Damaged | JournalErrorKind::Version);
                    assert!(known, "bit {bit}, in byte {byte}: {error}");
                }
            }
            if bit % 5 == 0 {
                assert!(journal.open(&run()).await.is_err());
                assert_eq!(fs::read(&file).unwrap(), flipped, "it was changed");
            }
        }
        fs::write(&file, &whole).unwrap();
    }
}

#[tokio::test]
async fn damaged_record_error_names_file_line_and_remedy() {
    let folder = Folder::new();
    let records = short(&folder).await;
    let whole = fs::read_to_string(folder.file()).unwrap();
    fs::write(folder.file(), whole.replace("a b, c", "a b, d")).unwrap();
    let error = folder.journal().open(&run()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Damaged);
    let expected = "the journal `r.jsonl` cannot be read and was left unchanged: line 5: it is not \
        record 3 as it was written: its checksum does not match; restore the file from a copy, or \
        cut it after line 4 to resume from there; later effects may then run again";
    assert_eq!(error.to_string(), expected);
    // The suggested remedy works.
    let cut: String = whole.split_inclusive('\n').take(4).collect();
    fs::write(folder.file(), cut).unwrap();
    assert_eq!(
        folder.journal().open(&run()).await.unwrap().records,
        records[..3]
    );
}

#[tokio::test]
async fn unwritten_sectors_are_cut_off_and_single_zero_is_damage() {
    let folder = Folder::new();
    let mut records = short(&folder).await;
    let whole = fs::read(folder.file()).unwrap();
    let start = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    records.pop();
    // This is a long last line, of which the disk has written some sectors and not others.
    let line = sealed(&format!(
        "{{\"seq\":4,\"at\":5,\"entry\":{{\"ended\":\"complete\"}},\"x\":\"{}\"}}",
        "x".repeat(3_000)
    ));
    let torn = [&whole[..start], line.as_bytes(), b"\n"].concat();
    let sector = start.next_multiple_of(512);
    for (from, to, is_torn) in [
        (sector, sector + 512, true),
        (start, sector, true),
        (sector + 1_024, torn.len(), true),
        (sector + 1, sector + 2, false),
        (sector, sector + 511, false),
        (sector - 1, sector + 512, false),
    ] {
        let mut torn = torn.clone();
        torn[from..to].fill(0);
        fs::write(folder.file(), &torn).unwrap();
        match folder.journal().open(&run()).await {
            Ok(open) => assert!(
                is_torn && open.records == records,
                "zeros from {from} to {to}"
            ),
            Err(error) => assert!(!is_torn, "zeros from {from} to {to}: {error}"),
        }
    }
}
