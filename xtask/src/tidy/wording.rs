//! Rules on language: words and names that `docs/glossary.md` replaces.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};
use regex::{Regex, RegexSet, RegexSetBuilder};

use super::{Finding, Workspace};

/// Pattern, exception on the same line (or empty), replacement.
type Rule = (&'static str, &'static str, &'static str);

/// Not in comments, string literals and documents.
const WORDS: &[Rule] = &[
    (
        r"\b(nobody|somebody|anybody|everybody|whoever|whom)\b",
        r"\buser nobody\b|65534",
        "name the subject: the agent, the kubelet, the user, the caller",
    ),
    (
        r"\b(is|are|was|were|be|been|being) (told|said|asked|heard|looked (at|after))\b",
        "",
        "notified, reported, requested, read",
    ),
    (
        r"\b(goes|go|going|went) on\b",
        r"\bon (the|a|an)\b",
        "continues",
    ),
    (
        r"\banew\b|\bin vain\b|\bfor ever\b|\blast words\b|\bhad (its|their) time\b",
        "",
        "again, without effect, termination message, timed out",
    ),
    (
        r"\b(earlier|former|next|another|new|one) li(fe|ves)\b|\bli(fe|ves) of the agent\b",
        "",
        "agent run",
    ),
    (
        r"\bas (it )?(was |is )?asked\b|\bwhat (was|is) asked\b|\bacted upon\b|\bnothing follows\b",
        "",
        "desired; supported, not implemented",
    ),
    (
        r"\bverdicts?\b|\bstrangers?\b|\bbelie(f|ved|ves)\b|\bdoomed\b|\bforsak\w+|\bgreed(y|iest)\b",
        "",
        "result or decision, unauthenticated client, initial result, removable",
    ),
    (
        r"\b(is|are|was|were) (none|no)\b",
        r"\bthere (is|are|was|were) (none|no)\b|\bno (longer|more|less)\b",
        "is not a …, has no …",
    ),
    (
        r"\bin (upstream's|its own|other|their|our|Go's) words\b|\bthe words (are|of)\b",
        "",
        "name upstream's function or text",
    ),
    (
        r"\blies? (on|in|at|there|below|beside|beneath|under)\b|\bwhat there is\b|\bat present\b|\bthe present\b",
        "",
        "is in; observed; now",
    ),
    (
        r"\b(comes|came|come) to\b|\bwhat (came|becomes|became) of\b",
        r"\bcomes? to (the|a|an|be|rest)\b",
        "results in, amounts to",
    ),
    (
        r"\bhears? (of|from|by|what|that)\b|\bheard of\b|\btells? (the|a|it|its|them|everyone|which|whether|that)\b",
        "",
        "is notified of, notifies, reports",
    ),
    (
        r"\b(tak(e|es|en|ing)|took) back\b|\bgives? way\b|\bma(ke|de) room\b",
        "",
        "revert, yield, free",
    ),
    (
        r"(^|[.;:(] ?|\b(for|of|by|to|from|with) )who (asks?|goes|waits|needs|wants|calls|reads|has|may|is|does|only)\b",
        "",
        "the caller, the client",
    ),
    (
        r"\bunder way\b|\b(a|two|another|each|one) looks?\b|\blooks? again\b|\bits turn\b",
        "",
        "in progress, relist, inspection, retry, permit",
    ),
    (
        r"\b(behaviour|colour|licence|initialis|recognis|optimis|organis|serialis)\w*",
        "",
        "US spelling",
    ),
];

/// Not on lines that declare something.
const NAMES: &[Rule] = &[
    (
        r"\b(struct|enum|type|trait) (Told|Asked|Heard|Wrote|Written|Shown|Found|Known|Seen|Held|Kept|Sent|Taken|Named|Begun|Refused|Given|Lying|Leaving|Doomed)\b",
        "",
        "a noun for what the type holds",
    ),
    (
        r"\b(struct|enum|type|trait) (What|When|Why|Who|Words|Worth|Lack|Offer|Belief|Looks?|Turns?|Places?|Surroundings|Standing|Stranger|Answers?|Question|\w*Verdict)\b",
        "",
        "a term of docs/glossary.md",
    ),
    (
        r"\bfn (tell|told|said|say|hear|heard|forsake|had_its_time|who_goes_on|led_to)(_\w+)?\b",
        "",
        "report_, notify_, record_, log_, handle",
    ),
    (
        r"\bconst (\w*PATIENCE\w*|LONGEST\w*|MOST\w*|SHORTEST\w*|LEAST\w*|\w*LOOKS?|LAST_WORDS|FAREWELL|GOODBYE)\b",
        "",
        "_TIMEOUT, MAX_, MIN_, _INTERVAL",
    ),
];

/// The longest name of a test.
const MAX_TEST_NAME: usize = 60;
/// Test names do not begin like this.
const QUESTIONS: &[&str] = &[
    "what_",
    "who_",
    "whoever_",
    "whom_",
    "nobody_",
    "somebody_",
    "nothing_",
];
/// A line with this mark may use a forbidden word, for example to match a text of upstream.
const KEEP: &str = "lang: keep";
/// Files that quote forbidden words on purpose.
const QUOTES: &[&str] = &["xtask/src/tidy/wording.rs", "docs/glossary.md"];
/// Documents and comments outside Rust sources.
const DOCUMENTS: &[&str] = &["md", "proto", "yaml", "toml"];

struct Rules {
    forbidden: RegexSet,
    allowed: Vec<Option<Regex>>,
    fixes: Vec<&'static str>,
}

impl Rules {
    fn new(rules: &[Rule], case_insensitive: bool) -> Result<Self, regex::Error> {
        let forbidden = RegexSetBuilder::new(rules.iter().map(|rule| rule.0))
            .case_insensitive(case_insensitive)
            .build()?;
        let allow =
            |rule: &Rule| (!rule.1.is_empty()).then(|| Regex::new(&format!("(?i){}", rule.1)));
        let allowed = rules
            .iter()
            .map(|rule| allow(rule).transpose())
            .collect::<Result<_, _>>()?;
        let fixes = rules.iter().map(|rule| rule.2).collect();
        Ok(Self {
            forbidden,
            allowed,
            fixes,
        })
    }

    /// The fix of the first rule that a text breaks.
    fn broken(&self, text: &str) -> Option<&'static str> {
        let allowed = |rule: &usize| {
            self.allowed[*rule]
                .as_ref()
                .is_some_and(|it| it.is_match(text))
        };
        let rule = self
            .forbidden
            .matches(text)
            .iter()
            .find(|rule| !allowed(rule))?;
        Some(self.fixes[rule])
    }
}

/// No forbidden word in a comment, a message, a document, a declaration or the name of a test.
pub(crate) fn wording(workspace: &Workspace) -> Vec<Finding> {
    let (words, names) = match (Rules::new(WORDS, true), Rules::new(NAMES, false)) {
        (Ok(words), Ok(names)) => (words, names),
        (Err(error), _) | (_, Err(error)) => {
            return vec![Finding::new(
                QUOTES[0],
                1,
                error.to_string(),
                "mend the pattern",
            )];
        }
    };
    let mut findings = Vec::new();
    for (path, text) in &workspace.sources {
        if QUOTES.contains(&path.as_str()) {
            continue;
        }
        for (number, fix) in source(text, &words, &names) {
            findings.push(Finding::new(path, number, "wording", fix));
        }
        for (number, name) in test_names(text) {
            let fix = "subject_condition_result, at most 60 characters";
            let is_question = QUESTIONS.iter().any(|word| name.starts_with(word));
            if name.len() > MAX_TEST_NAME || is_question {
                findings.push(Finding::new(path, number, format!("test name {name}"), fix));
            }
        }
    }
    for (path, text) in workspace.documents(DOCUMENTS) {
        if QUOTES.contains(&path.as_str()) {
            continue;
        }
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.contains(KEEP))
        {
            if let Some(fix) = words.broken(line) {
                findings.push(Finding::new(&path, index + 1, "wording", fix));
            }
        }
    }
    findings
}

/// Line numbers of a Rust file with the fix for each.
fn source(text: &str, words: &Rules, names: &Rules) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().collect();
    let keeps = |number: usize| {
        lines
            .get(number - 1)
            .is_some_and(|line| line.contains(KEEP))
    };
    let mut findings = Vec::new();
    let (mut at, mut number) = (0, 1);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let end = at + token.len as usize;
        let part = &text[at..end];
        let is_text = match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => true,
            TokenKind::Literal { kind, .. } => is_string(kind),
            _ => false,
        };
        for (offset, line) in part.split('\n').enumerate().filter(|_| is_text) {
            if let Some(fix) = words.broken(line).filter(|_| !keeps(number + offset)) {
                findings.push((number + offset, fix));
            }
        }
        number += part.matches('\n').count();
        at = end;
    }
    for (index, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.contains(KEEP))
    {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(fix) = names.broken(code) {
            findings.push((index + 1, fix));
        }
    }
    findings
}

fn is_string(kind: LiteralKind) -> bool {
    matches!(
        kind,
        LiteralKind::Str { .. }
            | LiteralKind::ByteStr { .. }
            | LiteralKind::RawStr { .. }
            | LiteralKind::RawByteStr { .. }
    )
}

/// Names of test functions with their lines.
fn test_names(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut is_next = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split([']', '(']).next().unwrap_or_default();
            is_next |= path == "test" || path.ends_with("::test");
        } else if is_next && let Some((_, rest)) = line.split_once("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            names.push((index + 1, name));
            is_next = false;
        } else if !line.starts_with("//") && !line.is_empty() {
            is_next = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[usize]) {
        let words = Rules::new(WORDS, true).expect("patterns");
        let names = Rules::new(NAMES, false).expect("patterns");
        let found: Vec<usize> = source(text, &words, &names)
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn wording_finds_comments_strings_and_names() {
        check("// the pod goes on\nlet a = 1;", &[1]);
        check("// the pod goes on the list\n", &[]);
        check("let a = 1;\nlog(\"nobody\n is told\");", &[2, 3]);
        check("let told = is_told();", &[]);
        check("struct Told;\nconst PATIENCE: u8 = 1;", &[1, 2]);
        check("// nobody lang: keep\nlet a = r#\"goes on\"#;", &[2]);
    }

    #[test]
    fn wording_reads_test_names_behind_attributes() {
        let text = "#[tokio::test(start_paused = true)]\n#[ignore]\nasync fn a_b() {}\nfn c() {}\n#[test]\nfn d() {}";
        assert_eq!(test_names(text), [(3, "a_b"), (6, "d")]);
    }
}
