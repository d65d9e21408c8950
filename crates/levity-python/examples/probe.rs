use levity_python::*;
use std::time::*;
#[tokio::main]
async fn main() {
    worker_main();
    let mode = std::env::args().nth(1).unwrap();
    let file = std::env::args().nth(2).unwrap();
    let iso = if mode == "t" { Isolation::Thread } else { Isolation::Auto };
    let p = Python::isolated(iso).with_limits(Limits::new().time(Duration::from_secs(2)));
    let src = std::fs::read_to_string(&file).unwrap();
    for case in src.split("\n#---\n") {
        let t = Instant::now();
        let r = p.run(case, serde_json::json!({"x": 41})).await;
        let head: String = case.chars().take(60).collect();
        let s = match r { Ok(r) => format!("OK {} | {:?}", r.result, r.output), Err(e) => { let f = e.fault().cloned(); format!("ERR {:?} {}", f.as_ref().map(|f| f.kind), f.map(|f| f.traceback).unwrap_or(e.to_string())) } };
        let s: String = s.chars().take(400).collect();
        println!("== {:?} [{:?}] rss {}\n   {}", head, t.elapsed(), std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap(), s.replace('\n', "\n   "));
    }
}
