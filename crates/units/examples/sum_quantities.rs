//! Sums Kubernetes quantities and prints the sum in several units.
//!
//! `cargo run -p windlass-units --example sum_quantities -- 512Mi 1.5Gi` sums the arguments;
//! without arguments it sums a list of its own.
//!
//! Runs without a container runtime.

use std::error::Error;

use windlass_units::quantity::Quantity;

fn main() -> Result<(), Box<dyn Error>> {
    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.is_empty() {
        texts = ["100m", "0.5", "1400m"].map(str::to_owned).to_vec();
    }
    let mut sum = Quantity::ZERO;
    for text in &texts {
        let quantity: Quantity = text.parse()?;
        println!("{text:>11} = {quantity}");
        sum = sum + quantity;
    }
    println!("        sum = {sum}");
    println!("      units = {}", sum.value());
    println!("thousandths = {}", sum.milli_value());
    Ok(())
}
