//! Reference pages that are made from the code: settings, flags, metrics, endpoints. `cargo xtask
//! reference` writes them, `cargo xtask tidy` fails when they are stale.

mod endpoints;
mod metrics;
mod settings;

use std::fs;
use std::path::Path;

use anyhow::Context;

use xtask_run as run;

/// Where the pages are.
pub(crate) const DIRECTORY: &str = "docs/reference";

/// What each page begins with.
const NOTE: &str = "Made by `cargo xtask reference` from the code: change that, not this page.";

/// The pages: file name and text. `source` gives a text file of the workspace.
pub(crate) fn pages(
    source: &dyn Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("configuration.md", settings::configuration(source)?),
        ("feature-gates.md", settings::gates()),
        ("flags.md", settings::flags()),
        ("metrics.md", metrics::page(source)?),
        ("endpoints.md", endpoints::page(source)?),
    ])
}

/// Writes the pages.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = run::root();
    let directory = root.join(DIRECTORY);
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for (name, text) in pages(&|path| read(&root.join(path)))? {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("{DIRECTORY}/{name}");
    }
    Ok(())
}

/// The pages that are not what the code says now.
pub(crate) fn stale(root: &Path) -> anyhow::Result<Vec<String>> {
    let pages = pages(&|path| read(&root.join(path)))?;
    let stale = pages.into_iter().filter_map(|(name, text)| {
        let path = format!("{DIRECTORY}/{name}");
        let current = fs::read_to_string(root.join(&path)).unwrap_or_default();
        (current != text).then_some(path)
    });
    Ok(stale.collect())
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The beginning of a page.
fn head(title: &str, about: &str) -> String {
    format!("# {title}\n\n{NOTE}\n\n{about}\n")
}

/// A Markdown table, an empty line before it.
fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("\n| {} |\n", heading.join(" | "));
    text += &format!("|{}\n", "---|".repeat(heading.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// A value or name as code; nothing for an empty one.
fn code(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests;
