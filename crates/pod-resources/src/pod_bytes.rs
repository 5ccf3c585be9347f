//! Encodes a pod in the Kubernetes protobuf format, for Go's `v1.Pod.Unmarshal`.
//!
//! Each message is encoded from the JSON object of the same shape, by the table in `schema`. A
//! struct that Go embeds in JSON (`Inlined`) is a separate message. Zero values, which Go encodes,
//! are omitted; they decode to the same.

#[rustfmt::skip]
mod schema;
#[cfg(test)]
pub(crate) mod tests;

use serde_json::Value;
use windlass_types::Timestamp;
use windlass_types::corev1::Pod;

/// Fields of a message: JSON name, number, kind. A list is a repeated field.
struct Message(&'static [(&'static str, u8, Kind)]);

/// Encoding of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Int,
    Of(&'static Message),
    /// A message whose fields are part of its parent in JSON.
    Inlined(&'static Message),
    TextMap,
    QuantityMap,
    Quantity,
    /// RFC 3339 in JSON, seconds and nanoseconds in protobuf.
    Time,
    IntOrText,
    /// `FieldsV1`: embedded JSON.
    Fields,
}

/// Wire types of protobuf.
const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// Encodes a pod.
///
/// # Errors
/// The pod cannot be serialized to JSON.
pub(crate) fn pod_bytes(pod: &Pod) -> Result<Vec<u8>, serde_json::Error> {
    let value = serde_json::to_value(pod)?;
    Ok(message(&schema::POD, &value))
}

fn message(message: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, number, kind) in message.0 {
        if let Kind::Inlined(inner) = kind {
            let inner = self::message(inner, value);
            if !inner.is_empty() {
                put_bytes(*number, &inner, &mut out);
            }
            continue;
        }
        match value.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for item in items {
                    field(*number, *kind, item, &mut out);
                }
            }
            Some(one) => field(*number, *kind, one, &mut out),
        }
    }
    out
}

fn field(number: u8, kind: Kind, value: &Value, out: &mut Vec<u8>) {
    match kind {
        Kind::Text => put_text(number, value, out),
        Kind::Bool => put_number(number, i64::from(value == &Value::Bool(true)), out),
        Kind::Int => put_number(number, value.as_i64().unwrap_or_default(), out),
        Kind::Of(inner) | Kind::Inlined(inner) => {
            put_bytes(number, &message(inner, value), out);
        }
        Kind::TextMap => entries(number, Kind::Text, value, out),
        Kind::QuantityMap => entries(number, Kind::Quantity, value, out),
        Kind::Quantity => put_with(number, out, |inner| put_text(1, value, inner)),
        Kind::Time => put_with(number, out, |inner| {
            let time: Option<Timestamp> = value.as_str().and_then(|text| text.parse().ok());
            let Some(time) = time else { return };
            // nanoseconds are never negative, as in Go
            let seconds = time.as_nanosecond().div_euclid(1_000_000_000);
            let nanos = time.as_nanosecond().rem_euclid(1_000_000_000);
            put_number(1, i64::try_from(seconds).unwrap_or_default(), inner);
            put_number(2, i64::try_from(nanos).unwrap_or_default(), inner);
        }),
        Kind::IntOrText => put_with(number, out, |inner| match value.as_i64() {
            Some(number) => put_number(2, number, inner),
            None => {
                put_number(1, 1, inner);
                put_text(3, value, inner);
            }
        }),
        Kind::Fields => put_with(number, out, |inner| {
            put_bytes(1, value.to_string().as_bytes(), inner);
        }),
    }
}

/// A map is a list of messages with a key and a value.
fn entries(number: u8, kind: Kind, map: &Value, out: &mut Vec<u8>) {
    for (key, value) in map.as_object().into_iter().flatten() {
        put_with(number, out, |inner| {
            put_bytes(1, key.as_bytes(), inner);
            field(2, kind, value, inner);
        });
    }
}

fn put_with(number: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    put_bytes(number, &inner, out);
}

fn put_text(number: u8, value: &Value, out: &mut Vec<u8>) {
    put_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out);
}

fn put_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | BYTES, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A negative number has ten bytes, as for `int32` and `int64`.
fn put_number(number: u8, value: i64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | VARINT, out);
    varint(value.cast_unsigned(), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
