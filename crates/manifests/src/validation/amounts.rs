//! Validation of resource requests and limits.

use windlass_types::corev1::ResourceRequirements;
use windlass_units::quantity::Quantity;

use super::field::Errors;

const HUGE_PAGES: &str = "hugepages-";

/// Validates requests and limits of a container (upstream `validateResourceRequirements`).
pub(super) fn amounts(resources: &ResourceRequirements, path: &str, errors: &mut Errors) {
    let lists = [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ];
    for (list, amounts) in lists {
        for (name, amount) in amounts.iter().flatten() {
            let field = format!("{path}.{list}[{name}]");
            amount_of(name, &amount.0, &field, errors);
        }
    }
    for (name, request) in resources.requests.iter().flatten() {
        let limit = resources.limits.as_ref().and_then(|l| l.get(name));
        let Some(limit) = limit else {
            if !can_be_overcommitted(name) {
                let detail = "Limit must be set for non overcommitable resources";
                errors.required(&format!("{path}.limits"), detail);
            }
            continue;
        };
        let (Ok(requested), Ok(limited)) =
            (request.0.parse::<Quantity>(), limit.0.parse::<Quantity>())
        else {
            continue;
        };
        let relation = match can_be_overcommitted(name) {
            false if requested != limited => "equal to",
            true if requested > limited => "less than or equal to",
            _ => continue,
        };
        let detail = format!("must be {relation} {name} limit of {}", limit.0);
        errors.invalid(&format!("{path}.requests"), &request.0, &detail);
    }
    let names = || {
        lists
            .iter()
            .flat_map(|(_, amounts)| amounts.iter().flatten())
    };
    let has_huge_pages = names().any(|(name, _)| name.starts_with(HUGE_PAGES));
    if has_huge_pages && !names().any(|(name, _)| name == "cpu" || name == "memory") {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn amount_of(name: &str, amount: &str, field: &str, errors: &mut Errors) {
    match amount.parse::<Quantity>() {
        Err(_) => {
            let detail = "must be a quantity such as 100m, 0.5 or 128Mi";
            errors.invalid(field, amount, detail);
        }
        Ok(quantity) if quantity.nanos() < 0 => {
            errors.invalid(field, amount, "must be greater than or equal to 0");
        }
        Ok(quantity) => {
            if let Some(page_size) = name.strip_prefix(HUGE_PAGES) {
                let page_size = page_size.parse().map_or(0, Quantity::value);
                if page_size <= 0 || quantity.value() % page_size != 0 {
                    let detail = format!("{amount} is not positive integer multiple of {name}");
                    errors.invalid(field, amount, &detail);
                }
            }
        }
    }
}

/// Returns false for resources whose request equals their limit: huge pages and devices.
fn can_be_overcommitted(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    is_native && !name.starts_with(HUGE_PAGES)
}
