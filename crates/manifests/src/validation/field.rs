//! Errors that name their field, in upstream's words (`spec.containers: Required value`).

use std::fmt;

use crate::yaml::Position;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, `spec.containers[0].image`.
    pub field: String,
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// Where the field, or its nearest ancestor, stands in the manifest.
    pub position: Option<Position>,
}

/// Upstream's error types for fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// It must be given; why, where that is not obvious.
    Required(String),
    /// The value, quoted if it is text, and why not.
    Invalid(String, String),
    /// The value is used twice.
    Duplicate(String),
    /// The value refers to nothing.
    NotFound(String),
    /// The value, and the ones there are.
    NotSupported(String, Vec<&'static str>),
    /// It must not be given; why.
    Forbidden(String),
    /// Over its limit; which.
    TooLong(String),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "line {}: ", position.line)?;
        }
        write!(f, "{}: ", self.field)?;
        match &self.kind {
            FieldErrorKind::Required(detail) if detail.is_empty() => f.write_str("Required value"),
            FieldErrorKind::Required(detail) => write!(f, "Required value: {detail}"),
            FieldErrorKind::Invalid(value, detail) => {
                write!(f, "Invalid value: {value}: {detail}")
            }
            FieldErrorKind::Duplicate(value) => write!(f, "Duplicate value: {value:?}"),
            FieldErrorKind::NotFound(value) => write!(f, "Not found: {value:?}"),
            FieldErrorKind::NotSupported(value, supported) => {
                write!(f, "Unsupported value: {value:?}: supported values: ")?;
                for (index, value) in supported.iter().enumerate() {
                    write!(f, "{}{value:?}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            FieldErrorKind::Forbidden(detail) => write!(f, "Forbidden: {detail}"),
            FieldErrorKind::TooLong(detail) => write!(f, "Too long: {detail}"),
        }
    }
}

/// The errors found so far.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub(super) fn add(&mut self, field: &str, kind: FieldErrorKind) {
        self.0.push(FieldError {
            field: field.to_owned(),
            kind,
            position: None,
        });
    }

    pub(super) fn required(&mut self, field: &str, detail: &str) {
        self.add(field, FieldErrorKind::Required(detail.to_owned()));
    }

    pub(super) fn invalid(&mut self, field: &str, value: impl fmt::Debug, detail: &str) {
        let value = format!("{value:?}");
        self.add(field, FieldErrorKind::Invalid(value, detail.to_owned()));
    }

    pub(super) fn duplicate(&mut self, field: &str, value: &str) {
        self.add(field, FieldErrorKind::Duplicate(value.to_owned()));
    }

    pub(super) fn not_found(&mut self, field: &str, value: &str) {
        self.add(field, FieldErrorKind::NotFound(value.to_owned()));
    }

    pub(super) fn forbidden(&mut self, field: &str, detail: &str) {
        self.add(field, FieldErrorKind::Forbidden(detail.to_owned()));
    }

    /// Required, and valid by a rule of [`names`](super::names).
    pub(super) fn name(&mut self, field: &str, value: &str, rule: fn(&str) -> Result<(), &str>) {
        if value.is_empty() {
            self.required(field, "");
        } else if let Err(detail) = rule(value) {
            self.invalid(field, value, detail);
        }
    }

    /// An absent value is fine: defaulting has filled in what must be there.
    pub(super) fn one_of(&mut self, field: &str, value: Option<&str>, supported: &[&'static str]) {
        if let Some(value) = value.filter(|v| !supported.contains(v)) {
            let kind = FieldErrorKind::NotSupported(value.to_owned(), supported.to_vec());
            self.add(field, kind);
        }
    }
}
