//! Tables of quantities, and their properties.

use proptest::prelude::*;

use super::*;

/// `canonical value milli`, or the error.
fn check(text: &str, expected: &str) {
    let line = match text.parse::<Quantity>() {
        Ok(q) => format!("{q} {} {}", q.value(), q.milli_value()),
        Err(error) => error.to_string(),
    };
    assert_eq!(line, expected, "{text:?}");
}

#[test]
fn quantity_text_is_canonical_and_rounds_away_from_zero() {
    check("0", "0 0 0");
    check("100m", "100m 1 100");
    check("1500m", "1500m 2 1500");
    check("2000m", "2 2 2000");
    check("0.5", "500m 1 500");
    check(".5", "500m 1 500");
    check("5.", "5 5 5000");
    check("+1", "1 1 1000");
    check("-1500m", "-1500m -2 -1500");
    check("1n", "1n 1 1");
    check("1u", "1u 1 1");
    check("0.0000000001", "1n 1 1");
    check("1k", "1k 1000 1000000");
    check("1200k", "1200k 1200000 1200000000");
    check("1000k", "1M 1000000 1000000000");
    check("128Mi", "128Mi 134217728 134217728000");
    check("1024Mi", "1Gi 1073741824 1073741824000");
    check("1.5Gi", "1536Mi 1610612736 1610612736000");
    check("1.1Gi", "1181116006400m 1181116007 1181116006400");
    check("0.5Ki", "512 512 512000");
    check("1000Ki", "1000Ki 1024000 1024000000");
    check("1023Ki", "1023Ki 1047552 1047552000");
    check("1e3", "1e3 1000 1000000");
    check("1E3", "1e3 1000 1000000");
    check("12e-3", "12e-3 1 12");
    check("1E", "1E 1000000000000000000 9223372036854775807");
    check("7Ei", "7Ei 8070450532247928832 9223372036854775807");
    check("1P", "1P 1000000000000000 1000000000000000000");
    check("3T", "3T 3000000000000 3000000000000000");
    check("5G", "5G 5000000000 5000000000000");
}

#[test]
fn values_beyond_int64_are_capped() {
    check(
        "100Ei",
        "9223372036854775807 9223372036854775807 9223372036854775807",
    );
    check(
        "1e99",
        "9223372036854775807 9223372036854775807 9223372036854775807",
    );
    check("1e-99", "1e-9 1 1");
    check(
        "99999999999999999999999999999999999999999999Ki",
        "9223372036854775807 9223372036854775807 9223372036854775807",
    );
}

#[test]
fn invalid_quantity_names_the_invalid_part() {
    check("", "quantity is empty");
    check("-", "quantity \"-\" does not start with a decimal number");
    check(".", "quantity \".\" does not start with a decimal number");
    check(
        "1.2.3",
        "quantity \"1.2.3\" does not start with a decimal number",
    );
    check(
        "ten",
        "quantity \"ten\" does not start with a decimal number",
    );
    check("1K", "quantity \"1K\" has an unknown suffix");
    check("1ki", "quantity \"1ki\" has an unknown suffix");
    check("1 Gi", "quantity \"1 Gi\" has an unknown suffix");
    check("1e", "quantity \"1e\" has an unknown suffix");
    check("1é", "quantity \"1é\" has an unknown suffix");
}

#[test]
fn division_rounds_up() {
    let count = |amount: &str, divisor: &str, milli| {
        let amount: Quantity = amount.parse().expect("amount");
        amount.in_units_of(divisor.parse().expect("divisor"), milli)
    };
    assert_eq!(count("1500m", "1", true), 2);
    assert_eq!(count("1500m", "1m", true), 1500);
    assert_eq!(count("1500m", "0", true), 2);
    assert_eq!(count("100Mi", "1Mi", false), 100);
    assert_eq!(count("100Mi", "1M", false), 105);
    assert_eq!(count("100Mi", "0", false), 104_857_600);
}

#[test]
fn sum_has_format_of_first_nonzero_operand() {
    let add = |a: &str, b: &str| {
        let a: Quantity = a.parse().expect("a");
        (a + b.parse().expect("b")).to_string()
    };
    assert_eq!(add("0", "1Gi"), "1Gi");
    assert_eq!(add("512Mi", "512Mi"), "1Gi");
    assert_eq!(add("100m", "900m"), "1");
}

proptest! {
    #[test]
    fn canonical_text_parses_back_to_the_same_value(
        units in -1_000_000_000_i64..1_000_000_000,
        suffix in prop::sample::select(vec![
            "n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-3",
        ]),
        fraction in 0_u32..1000,
    ) {
        let q: Quantity = format!("{units}.{fraction:03}{suffix}").parse().expect("valid");
        let text = q.to_string();
        let again: Quantity = text.parse().expect("canonical");
        prop_assert_eq!(q, again);
        prop_assert_eq!(text, again.to_string());
    }

    #[test]
    fn quantities_order_by_value(a in any::<i32>(), b in any::<i32>()) {
        let parse = |n: i32| format!("{n}m").parse::<Quantity>().expect("valid");
        prop_assert_eq!(parse(a).cmp(&parse(b)), a.cmp(&b));
    }

    #[test]
    fn quantity_parser_never_panics(text in "\\PC{0,12}|[-+]?[0-9.]{0,50}[a-zA-Z0-9+-]{0,6}") {
        let _ = text.parse::<Quantity>().map(|q| q.to_string());
    }
}
