//! Errors of one field, with the messages of upstream (`spec.containers: Required value`).

use std::fmt;

use crate::yaml::Position;

/// Error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, `spec.containers[0].image`.
    pub field: String,
    /// The kind of error.
    pub kind: FieldErrorKind,
    /// Position of the field, or of its nearest ancestor, in the manifest.
    pub position: Option<Position>,
}

/// Kind of a field error, as upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// Required, with an optional detail.
    Required(String),
    /// Invalid value, and the detail.
    Invalid(String, String),
    /// Duplicate value.
    Duplicate(String),
    /// Reference that does not exist.
    NotFound(String),
    /// Unsupported value, and the supported ones.
    NotSupported(String, Vec<&'static str>),
    /// Forbidden, and the detail.
    Forbidden(String),
    /// Too long, and the limit.
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

    /// Checks a required name by a rule of `names`.
    pub(super) fn name(&mut self, field: &str, value: &str, rule: fn(&str) -> Result<(), &str>) {
        if value.is_empty() {
            self.required(field, "");
        } else if let Err(detail) = rule(value) {
            self.invalid(field, value, detail);
        }
    }

    /// Checks an enumeration; an absent value is valid.
    pub(super) fn one_of(&mut self, field: &str, value: Option<&str>, supported: &[&'static str]) {
        if let Some(value) = value.filter(|v| !supported.contains(v)) {
            let kind = FieldErrorKind::NotSupported(value.to_owned(), supported.to_vec());
            self.add(field, kind);
        }
    }
}
