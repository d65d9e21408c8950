//! URLs that lead to refused addresses, and servers that redirect there.

use levity_sandbox::{AddressError, NetError, NetGuard};
use tokio::net::TcpListener;

use super::loopback::{Names, Server, moved, ok};

/// URLs that a default guard refuses, grouped by the rule that refuses them.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "address",
        &[
            // Plain notation.
            "https://127.0.0.1/",
            "https://127.0.0.1:443/",
            "https://127.1.2.3/",
            "https://10.0.0.1/",
            "https://172.16.0.1/",
            "https://172.31.255.255/",
            "https://192.168.1.1/admin",
            "https://169.254.169.254/latest/meta-data/",
            "https://169.254.170.2/v2/credentials/",
            "https://100.64.0.1/",
            "https://100.100.100.200/latest/meta-data/",
            "https://192.0.0.192/opc/v1/",
            "https://168.63.129.16/machine",
            "https://0.0.0.0/",
            "https://0.1.2.3/",
            "https://224.0.0.1/",
            "https://239.255.255.250/",
            "https://240.0.0.1/",
            "https://255.255.255.255/",
            "https://192.0.2.1/",
            "https://198.51.100.1/",
            "https://203.0.113.1/",
            "https://198.18.0.1/",
            "https://192.88.99.1/",
            // Other number formats: octal, hexadecimal, short, a single number, with dots at the
            // end.
            "https://0177.0.0.1/",
            "https://0x7f.0.0.1/",
            "https://0X7F.0.0.1/",
            "https://0x7f000001/",
            "https://0x7F.1/",
            "https://127.1/",
            "https://127.0.1/",
            "https://2130706433/",
            "https://017700000001/",
            "https://0/",
            "https://0x0/",
            "https://3232235777/",
            "https://2852039166/latest/meta-data/",
            "https://0xa9.0xfe.0xa9.0xfe/",
            "https://0251.0376.0251.0376/",
            "https://0xA9FEA9FE/",
            "https://169.254.43518/",
            "https://127.0.0.1./",
            "https://0x7f.1./",
            // Other digits and dots, or escapes.
            "https://１２７.０.０.１/",
            "https://①②⑦.⓪.⓪.①/",
            "https://127。0。0。1/",
            "https://127．0．0．1/",
            "https://127｡0｡0｡1/",
            "https://%31%32%37.0.0.1/",
            "https://127%2e0%2e0%2e1/",
            "https://0x7f%2e1/",
            // IPv6 in its forms.
            "https://[::1]/",
            "https://[::]/",
            "https://[0:0:0:0:0:0:0:1]/",
            "https://[0000:0000:0000:0000:0000:0000:0000:0001]/",
            "https://[::127.0.0.1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[0:0:0:0:0:ffff:127.0.0.1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://[::FFFF:a9fe:a9fe]/",
            "https://[::ffff:8.8.8.8]/",
            "https://[::ffff:0:127.0.0.1]/",
            "https://[64:ff9b::127.0.0.1]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://[64:ff9b::10.0.0.1]/",
            "https://[64:ff9b:1::8.8.8.8]/",
            "https://[2002:7f00:1::]/",
            "https://[2002:a9fe:a9fe::1]/",
            "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
            "https://[2001:db8::1]/",
            "https://[3fff::1]/",
            "https://[100::1]/",
            "https://[5f00::1]/",
            "https://[fe80::1]/",
            "https://[fec0::1]/",
            "https://[fc00::1]/",
            "https://[fd00:ec2::254]/latest/meta-data/",
            "https://[fd20:ce::254]/",
            "https://[ff02::1]/",
            "https://[2a00:1450:4001:81b:0:5efe:7f00:1]/",
        ],
    ),
    (
        "local name",
        &[
            "https://localhost/",
            "https://LOCALHOST/",
            "https://localhost./",
            "https://loc%61lhost/",
            "https://ｌｏｃａｌｈｏｓｔ/",
            "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
            "https://foo.localhost/",
            "https://a.b.LocalHost./",
            "https://localhost.localdomain/",
            "https://printer.local/",
            "https://router.lan/",
            "https://nas.home.arpa/",
            "https://intranet/",
            "https://metadata/",
            "https://instance-data/latest/meta-data/",
            "https://metadata.google.internal/computeMetadata/v1/",
            "https://METADATA.google.internal./computeMetadata/v1/",
            "https://metadata.goog/",
            "https://metadata.azure.com/",
            "https://metadata.azure.internal/",
            "https://instance-data.ec2.internal/",
            "https://kubernetes.default.svc/",
            "https://kubernetes.default.svc.cluster.local/",
            "https://wiki.corp/",
            "https://db.internal/",
        ],
    ),
    (
        "userinfo",
        &[
            "https://good.example.org@127.0.0.1/",
            "https://good.example.org:443@127.0.0.1/",
            "https://user:secret@example.org/",
            "https://user@example.org/",
            "https://:secret@example.org/",
            "https://127.0.0.1@example.org/",
            "https://a@b@127.0.0.1/",
            "https://good.example.org%40x@127.0.0.1/",
            "https://good.example.org%2F@127.0.0.1/",
            "https://\u{a0}@example.org/",
        ],
    ),
    (
        "scheme",
        &[
            "file:///etc/passwd",
            "file://127.0.0.1/etc/passwd",
            "ftp://example.org/",
            "gopher://127.0.0.1:6379/_INFO",
            "data:text/html,hello",
            "javascript:alert(1)",
            "dict://127.0.0.1:11211/stat",
            "ldap://127.0.0.1/",
            "ws://example.org/",
            "wss://example.org/",
            "unix:/var/run/docker.sock",
            "jar:https://example.org/a.jar!/",
            "about:blank",
            "view-source:https://example.org/",
            "blob:https://example.org/1",
            "localhost:443",
        ],
    ),
    (
        "http",
        &[
            "http://example.org/",
            "HTTP://example.org/",
            "http://127.0.0.1/",
            "http:example.org",
        ],
    ),
    (
        "port",
        &[
            "https://example.org:22/",
            "https://example.org:80/",
            "https://example.org:6379/",
            "https://example.org:8443/",
            "https://example.org:0/",
            "https://example.org:65535/",
        ],
    ),
    (
        "host",
        &[
            "https://",
            "https:///",
            "https://?q",
            "https://#",
            "https://@/",
            "https://a..b/",
            "https://localhost../",
            "https://.localhost/",
            "https://example.org:99999/",
            "https://example.org:abc/",
            "https://[fe80::1%25eth0]/",
            "https://[fe80::1%eth0]/",
            "https://[::1/",
            "https://[v1.fe80::a]/",
            "https://[127.0.0.1]/",
            "https://good.example.org%00.127.0.0.1/",
            "https://exa mple.org/",
            "https://example.org%20.local/",
            "https://256.256.256.256/",
            "https://127.0.0.0.1/",
            "https://127.0.0.1.0x/",
            "https://example.org%2F@127.0.0.1%2F/",
            "https://a<b>.example.org/",
            "https://xn--a/",
        ],
    ),
    (
        "no url",
        &[
            "",
            " ",
            "example.org",
            "//example.org/",
            "/etc/passwd",
            "https",
            "127.0.0.1",
            "::1",
            "https://exam\tple.org/",
            "https://127.0.\n0.1/",
            "ht\ntps://127.0.0.1/",
            "https://example.org/\r\nHost: 127.0.0.1",
            "https://example.org/\0",
        ],
    ),
];

fn rule(error: &AddressError) -> &'static str {
    match error {
        AddressError::Address { .. } => "address",
        AddressError::LocalName(_) => "local name",
        AddressError::Credentials => "userinfo",
        AddressError::Scheme(_) => "scheme",
        AddressError::Http => "http",
        AddressError::Port(_) => "port",
        AddressError::InvalidHost => "host",
        AddressError::NotAUrl => "no url",
        AddressError::Denied(_) => "denied",
        AddressError::Unresolved(_) => "unresolved",
        AddressError::Redirect(_) => "redirect",
        _ => "another",
    }
}

#[test]
fn default_guard_refuses_listed_urls() {
    let guard = NetGuard::default();
    let mut wrong = Vec::new();
    for (expected, urls) in REFUSED {
        for url in *urls {
            match guard.check_url(url) {
                Err(error) if rule(&error) == *expected => {}
                found => wrong.push(format!("{url:?}: {expected} expected, {found:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(REFUSED.iter().map(|(_, urls)| urls.len()).sum::<usize>() >= 80);
}

#[test]
fn public_urls_are_returned_in_canonical_form() {
    let passes = [
        ("https://example.org", "https://example.org/"),
        ("https://example.org:443/a", "https://example.org/a"),
        ("  https://example.org/a  ", "https://example.org/a"),
        ("HTTPS://EXAMPLE.org/A?b=c#d", "https://example.org/A?b=c"),
        ("https://example.org./", "https://example.org/"),
        (
            "https://bücher.example.org/ö",
            "https://xn--bcher-kva.example.org/%C3%B6",
        ),
        ("https://www.例え.jp/", "https://www.xn--r8jz45g.jp/"),
        (
            "https://example.org\\@127.0.0.1/",
            "https://example.org/@127.0.0.1/",
        ),
        ("https://example.org#@127.0.0.1/", "https://example.org/"),
        (
            "https://example.org?@127.0.0.1/",
            "https://example.org/?@127.0.0.1/",
        ),
        (
            "https://example.org/@127.0.0.1",
            "https://example.org/@127.0.0.1",
        ),
        ("https://example.org/a/../../b", "https://example.org/b"),
        ("https:example.org", "https://example.org/"),
        ("https:/example.org", "https://example.org/"),
        ("https:\\\\example.org\\a", "https://example.org/a"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://134744072/", "https://8.8.8.8/"),
        ("https://0x08080808/", "https://8.8.8.8/"),
        ("https://172.15.0.1/", "https://172.15.0.1/"),
        ("https://100.128.0.1/", "https://100.128.0.1/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("https://[64:ff9b::8.8.8.8]/", "https://[64:ff9b::808:808]/"),
        ("https://127.0.0.1.nip.io/", "https://127.0.0.1.nip.io/"),
        (
            "https://localhost.example.org/",
            "https://localhost.example.org/",
        ),
        ("https://_dmarc.example.org/", "https://_dmarc.example.org/"),
    ];
    for (url, expected) in passes {
        let checked = NetGuard::default()
            .check_url(url)
            .unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(checked.as_str(), expected);
        assert!(!checked.host().is_empty() && checked.port() == 443);
    }
}

#[test]
fn host_lists_match_every_spelling() {
    let guard = NetGuard::builder()
        .allow_host("example.org")
        .allow_host("*.Bücher.example")
        .allow_host("wiki.corp")
        .allow_host("1.1.1.1")
        .deny_host("bad.xn--bcher-kva.example")
        .build()
        .unwrap();
    for url in [
        "https://EXAMPLE.org./",
        "https://www.bücher.example/",
        "https://wiki.corp/",
        "https://0x1010101/",
    ] {
        assert!(guard.check_url(url).is_ok(), "{url}");
    }
    let refused = [
        "https://www.example.org/",
        "https://bücher.example/",
        "https://BAD.bücher.example/",
        "https://8.8.8.8/",
    ];
    for url in refused {
        assert_eq!(
            guard.check_url(url).map_err(|error| rule(&error)),
            Err("denied"),
            "{url}"
        );
    }
    let any = NetGuard::builder()
        .allow_host("*")
        .allow_host("wiki.corp")
        .deny_host("*.evil.org")
        .build()
        .unwrap();
    assert!(
        any.check_url("https://wiki.corp/").is_ok()
            && any.check_url("https://example.org/").is_ok()
    );
    assert_eq!(
        any.check_url("https://intranet/")
            .map_err(|error| rule(&error)),
        Err("local name")
    );
    assert_eq!(
        any.check_url("https://a.evil.org/")
            .map_err(|error| rule(&error)),
        Err("denied")
    );
}

#[test]
fn only_allowed_address_range_is_reachable() {
    let guard = NetGuard::builder()
        .allow_address("10.1.0.0/16")
        .allow_port(8443)
        .build()
        .unwrap();
    assert!(guard.check_url("https://10.1.2.3:8443/").is_ok());
    for url in [
        "https://10.2.0.1/",
        "https://127.0.0.1/",
        "https://[::ffff:10.1.2.3]/",
        "https://10.1.2.3:22/",
    ] {
        assert!(guard.check_url(url).is_err(), "{url}");
    }
}

#[test]
fn invalid_guard_settings_are_named_in_error() {
    let refused = |builder: levity_sandbox::NetGuardBuilder| {
        builder.build().map(drop).unwrap_err().to_string()
    };
    assert!(
        refused(NetGuard::builder().allow_host("https://a.org"))
            .starts_with("the setting `allow_host` is invalid")
    );
    assert!(refused(NetGuard::builder().deny_host("a b")).contains("`a b`"));
    assert!(refused(NetGuard::builder().allow_address("10.0.0.0/99")).contains("`10.0.0.0/99`"));
}

#[test]
fn address_error_does_not_reveal_target() {
    let error = NetGuard::default()
        .check_url("https://10.11.12.13/")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the host `10.11.12.13` has a private address, which cannot be reached; use a public host"
    );
}

/// Returns the target of a redirect from `https://example.org/dir/page`.
fn redirect(guard: &NetGuard, location: &str) -> Result<String, &'static str> {
    let from = guard.check_url("https://example.org/dir/page").unwrap();
    match guard.check_redirect(&from, location) {
        Ok(next) => Ok(next.as_str().to_owned()),
        Err(AddressError::Redirect(why)) => Err(rule(&why)),
        Err(_) => Err("no redirect"),
    }
}

#[test]
fn redirect_targets_are_checked_like_urls() {
    let guard = NetGuard::default();
    for (location, expected) in [
        ("other", "https://example.org/dir/other"),
        ("/", "https://example.org/"),
        ("?q=1", "https://example.org/dir/page?q=1"),
        ("//www.example.org/x", "https://www.example.org/x"),
        ("https://example.net/", "https://example.net/"),
    ] {
        assert_eq!(
            redirect(&guard, location).as_deref(),
            Ok(expected),
            "{location}"
        );
    }
    for (location, expected) in [
        ("http://example.org/", "http"),
        ("//127.0.0.1/", "address"),
        ("//[::1]/", "address"),
        ("\\\\127.0.0.1\\", "address"),
        ("/\\127.0.0.1/", "address"),
        ("https://2130706433/", "address"),
        ("https://localhost/", "local name"),
        ("https://good@127.0.0.1/", "userinfo"),
        ("//good@example.org/", "userinfo"),
        ("file:///etc/passwd", "scheme"),
        ("ftp://example.org/", "scheme"),
        ("gopher://example.org/", "scheme"),
        ("data:text/html,hello", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("https://example.org:8080/", "port"),
        ("//example.org:22/", "port"),
        ("/\r\nset-cookie: a=b", "no url"),
        ("https://", "host"),
    ] {
        assert_eq!(redirect(&guard, location), Err(expected), "{location}");
    }
}

/// Starts an allowed server at `127.0.0.1`, and a refused one at `127.0.0.2`, on the same port.
async fn pair(answers: &[(&str, super::loopback::Answer)]) -> Option<(Server, Server)> {
    for _ in 0..20 {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = open.local_addr().unwrap().port();
        if let Ok(closed) = TcpListener::bind(("127.0.0.2", port)).await {
            return Some((Server::on(open, answers), Server::on(closed, &[])));
        }
    }
    #[allow(clippy::print_stdout, reason = "what is skipped is said aloud")]
    {
        println!("skipped: this machine has no second loopback address");
    }
    None
}

async fn get(guard: &NetGuard, url: &str) -> Result<String, NetError> {
    let client = guard.client()?;
    let mut reply = client.get(url)?.send().await?;
    Ok(String::from_utf8(reply.read(1000).await?.bytes).unwrap())
}

#[track_caller]
fn refused(found: Result<String, NetError>) -> &'static str {
    match found {
        Err(NetError::Address(AddressError::Redirect(error))) => rule(&error),
        Err(NetError::Address(error)) => rule(&error),
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn name_is_resolved_once_per_connection() {
    let Some((open, closed)) = pair(&[("/", ok("open"))]).await else {
        return;
    };
    let names = Names::default();
    // A rebinding server: a good address for the check, a bad one for the connection.
    names.add("rebind.example.org", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let guard = open.guard().resolver(names.clone()).build().unwrap();
    let url = format!("http://rebind.example.org:{}/", open.port());
    assert_eq!(get(&guard, &url).await.unwrap(), "open");
    assert_eq!(
        (
            names.asked("rebind.example.org"),
            open.touched(),
            closed.touched()
        ),
        (1, 1, 0)
    );
    // The next request checks again.
    assert_eq!(refused(get(&guard, &url).await), "address");
    assert_eq!(
        (
            names.asked("rebind.example.org"),
            open.touched(),
            closed.touched()
        ),
        (2, 1, 0)
    );
}

#[tokio::test]
async fn one_private_address_refuses_whole_name() {
    let Some((open, closed)) = pair(&[("/", ok("open"))]).await else {
        return;
    };
    let names = Names::default();
    names.add("first.example.org", &[&["127.0.0.1", "127.0.0.2"]]);
    names.add("last.example.org", &[&["127.0.0.2", "127.0.0.1"]]);
    names.add("mapped.example.org", &[&["127.0.0.1", "::ffff:127.0.0.1"]]);
    names.add("public.example.org", &[&["8.8.8.8", "10.0.0.1"]]);
    names.add("none.example.org", &[&[]]);
    let guard = open.guard().resolver(names).build().unwrap();
    for name in ["first", "last", "mapped", "public"] {
        let url = format!("http://{name}.example.org:{}/", open.port());
        assert_eq!(refused(get(&guard, &url).await), "address", "{name}");
    }
    for name in ["none", "unknown"] {
        let url = format!("http://{name}.example.org:{}/", open.port());
        assert_eq!(refused(get(&guard, &url).await), "unresolved", "{name}");
    }
    assert_eq!((open.touched(), closed.touched()), (0, 0));
}

#[tokio::test]
async fn name_that_changes_between_redirects_is_refused() {
    let Some((open, closed)) = pair(&[("/", moved(302, "/next")), ("/next", ok("next"))]).await
    else {
        return;
    };
    let names = Names::default();
    names.add("same.example.org", &[&["127.0.0.1"], &["127.0.0.2"]]);
    names.add("calm.example.org", &[&["127.0.0.1"]]);
    let guard = open.guard().resolver(names.clone()).build().unwrap();
    let url = format!("http://same.example.org:{}/", open.port());
    assert_eq!(refused(get(&guard, &url).await), "address");
    assert_eq!((open.touched(), closed.touched()), (1, 0));
    let url = format!("http://calm.example.org:{}/", open.port());
    assert_eq!(get(&guard, &url).await.unwrap(), "next");
}

#[tokio::test]
async fn redirects_to_private_ranges_are_not_followed() {
    let names = Names::default();
    names.add("inside.example.org", &[&["127.0.0.2"]]);
    let Some((open, closed)) = pair(&[]).await else {
        return;
    };
    let port = closed.port();
    let leads = [
        (format!("http://127.0.0.2:{port}/"), "address"),
        (format!("//127.0.0.2:{port}/"), "address"),
        (format!("http://0x7f.2:{port}/"), "address"),
        (format!("http://2130706434:{port}/"), "address"),
        (format!("http://0177.0.0.2:{port}/"), "address"),
        (format!("http://[::ffff:127.0.0.2]:{port}/"), "address"),
        (format!("http://inside.example.org:{port}/"), "address"),
        (format!("http://localhost:{port}/"), "local name"),
        (
            format!("http://127.0.0.1:{port}@127.0.0.2:{port}/"),
            "userinfo",
        ),
        (
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "address",
        ),
        ("http://metadata.google.internal/".to_owned(), "local name"),
        ("http://127.0.0.1:1/".to_owned(), "port"),
        ("file:///etc/passwd".to_owned(), "scheme"),
        ("gopher://127.0.0.1/".to_owned(), "scheme"),
    ];
    for (status, (location, expected)) in [301, 302, 303, 307, 308].into_iter().cycle().zip(&leads)
    {
        let first = Server::start(&[("/", moved(status, location))]).await;
        // Both ports are allowed; the address is refused.
        let guard = first
            .guard()
            .allow_port(port)
            .resolver(names.clone())
            .build()
            .unwrap();
        assert_eq!(
            refused(get(&guard, &first.url("/")).await),
            *expected,
            "{location}"
        );
        assert_eq!(first.touched(), 1);
    }
    assert_eq!((open.touched(), closed.touched()), (0, 0));
}

#[tokio::test]
async fn refused_url_opens_no_connection() {
    let server = Server::start(&[("/", ok("open"))]).await;
    let guard = NetGuard::builder()
        .allow_http()
        .allow_port(server.port())
        .build()
        .unwrap();
    assert_eq!(refused(get(&guard, &server.url("/")).await), "address");
    let other = NetGuard::builder()
        .allow_http()
        .allow_address("127.0.0.1")
        .build()
        .unwrap();
    assert_eq!(refused(get(&other, &server.url("/")).await), "port");
    assert_eq!(server.touched(), 0);
}

/// Proxies of the environment are read at process start, so this test runs itself again in a
/// process that has them.
#[tokio::test]
async fn proxy_of_environment_is_not_used() {
    if let Ok(url) = std::env::var("LEVITY_TEST_BEHIND_PROXY") {
        let port = url
            .rsplit(':')
            .next()
            .and_then(|port| port.trim_end_matches('/').parse().ok())
            .unwrap();
        let guard = NetGuard::builder()
            .allow_http()
            .allow_port(port)
            .allow_address("127.0.0.1")
            .build()
            .unwrap();
        assert_eq!(get(&guard, &url).await.unwrap(), "open");
        return;
    }
    let (server, proxy) = (
        Server::start(&[("/", ok("open"))]).await,
        Server::start(&[]).await,
    );
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "ssrf::proxy_of_environment_is_not_used"]);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        child.env(name, proxy.url(""));
    }
    let output = child
        .env("LEVITY_TEST_BEHIND_PROXY", server.url("/"))
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!((server.touched(), proxy.touched()), (1, 0));
}
