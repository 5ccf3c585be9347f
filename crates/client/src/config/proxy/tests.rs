//! The proxy of a server, by URL and environment.

use super::*;

/// `VARIABLE=value` words and a server, and the proxy, `direct` or the error.
fn check(environment: &str, server: &str, expected: &str) {
    let variable = |name: &str| {
        let mut words = environment.split_whitespace();
        let found = words.find_map(|word| word.strip_prefix(&format!("{name}=")));
        found.map(str::to_owned)
    };
    let server = server.parse().expect("a URL");
    let line = match Proxy::from_environment(&server, variable) {
        Ok(None) => "direct".to_owned(),
        Ok(Some(proxy)) => proxy.to_string(),
        Err((name, problem)) => format!("{name}: {problem}"),
    };
    assert_eq!(line, expected, "{environment} {server}");
}

const API: &str = "https://api.example.com:6443";

#[test]
fn proxy_environment_decides_by_scheme_of_server() {
    let both = "HTTPS_PROXY=http://secure:3128 HTTP_PROXY=http://plain:3128";
    check(both, API, "http://secure:3128");
    check(both, "http://api.example.com:8080", "http://plain:3128");
    check("HTTP_PROXY=http://plain:3128", API, "direct");
    check("ALL_PROXY=http://all:3128", API, "direct");
    check("https_proxy=http://lower:3128", API, "http://lower:3128");
    let upper_first = "https_proxy=http://lower:1 HTTPS_PROXY=http://upper:1";
    check(upper_first, API, "http://upper:1");
    check(
        "HTTPS_PROXY= https_proxy=http://lower:1",
        API,
        "http://lower:1",
    );
    // without a scheme it is http
    check("HTTPS_PROXY=proxy:3128", API, "http://proxy:3128");
    check(
        "HTTPS_PROXY=socks5://[fd00::1]",
        API,
        "socks5://[fd00::1]:1080",
    );
    let wrong = "HTTPS_PROXY: unsupported scheme; use http, https or socks5";
    check("HTTPS_PROXY=ftp://proxy", API, wrong);
}

#[test]
fn no_proxy_exempts_hosts_networks_and_ports() {
    let cases = [
        ("*", API, true),
        ("example.com", API, true),
        ("EXAMPLE.com", API, true),
        ("other,example.com", API, true),
        (".example.com", API, true),
        ("*.example.com", API, true),
        ("api.example.com", API, true),
        (".api.example.com", API, false),
        ("ple.com", API, false),
        ("example.com:6443", API, true),
        ("example.com:443", API, false),
        ("example.com", "https://example.com", true),
        (".example.com", "https://example.com", false),
        ("example.com:443", "https://example.com", true),
        ("10.0.0.0/8", "https://10.1.2.3:6443", true),
        ("10.0.0.0/8", "https://11.1.2.3:6443", false),
        ("0.0.0.0/0", "https://11.1.2.3:6443", true),
        ("10.0.0.0/33", "https://10.1.2.3:6443", false),
        ("10.0.0.0/8", API, false),
        ("10.1.2.3", "https://10.1.2.3:6443", true),
        ("10.1.2.3:6443", "https://10.1.2.3:6443", true),
        ("10.1.2.3:443", "https://10.1.2.3:6443", false),
        ("fd00::/16", "https://[fd00::1]:6443", true),
        ("fd00::1", "https://[fd00::1]:6443", true),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
        ("[fd00::1]:443", "https://[fd00::1]:6443", false),
        (":6443", API, false),
        ("", API, false),
        // always
        ("", "https://localhost:6443", true),
        ("", "https://127.0.0.1:6443", true),
        ("", "https://[::1]:6443", true),
    ];
    for (exempt, server, direct) in cases {
        let environment = format!("HTTPS_PROXY=http://proxy:3128 NO_PROXY={exempt}");
        let expected = if direct {
            "direct"
        } else {
            "http://proxy:3128"
        };
        check(&environment, server, expected);
    }
}

#[test]
fn proxy_url_is_read_and_its_credentials_are_not_shown() {
    let proxy = Proxy::parse("http://us%40er:pa%3Ass@proxy.example:3128/x").expect("a proxy");
    let expected = ("us@er".to_owned(), "pa:ss".to_owned());
    assert_eq!(proxy.user.as_ref(), Some(&expected));
    let header = proxy.authorization().expect("a header");
    assert_eq!(header, "Basic dXNAZXI6cGE6c3M=");
    assert!(header.is_sensitive());
    for shown in [
        format!("{proxy}"),
        format!("{proxy:?}"),
        format!("{header:?}"),
    ] {
        for secret in ["us%40er", "us@er", "pa%3Ass", "pa:ss", "dXNAZXI6cGE6c3M"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
    for (url, expected) in [
        ("http://proxy", "http://proxy:80"),
        ("HTTPS://proxy/", "https://proxy:443"),
        ("socks5h://proxy", "socks5://proxy:1080"),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
    ] {
        assert_eq!(Proxy::parse(url).expect("a proxy").to_string(), expected);
    }
    for url in [
        "",
        "proxy:3128",
        "http://",
        "http://:3128",
        "ftp://proxy",
        "http://pro xy",
    ] {
        let problem = Proxy::parse(url).expect_err(url);
        assert!(problem.contains("http"), "{problem}");
    }
}
