//! The status at the end of a command, on channel 3 of `v5.channel.k8s.io`.

use serde::{Deserialize, Serialize};

const NON_ZERO_EXIT_CODE: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// `metav1.Status`, as far as exec and attach use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[serde(skip_deserializing)]
    metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
}

/// Always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Metadata {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    message: String,
}

impl Status {
    /// Returns the client's status for a message of the runtime's error stream. It is rebuilt, so
    /// that it does not depend on the runtime.
    pub(super) fn from_message(message: &[u8]) -> Self {
        if message.is_empty() {
            return Self::success();
        }
        let status: Self = match serde_json::from_slice(message) {
            Ok(status) => status,
            Err(error) => {
                let message = String::from_utf8_lossy(message);
                return Self::protocol_error(&format!("{error} in {message:?}"));
            }
        };
        match status.status.as_str() {
            "Success" => Self::success(),
            "Failure" if status.reason == NON_ZERO_EXIT_CODE => status.exit(),
            "Failure" => Self::internal_error(&status.message),
            _ => Self::protocol_error("unknown error"),
        }
    }

    /// Returns the status for a failure of agent or runtime, with upstream's text around the cause.
    pub(super) fn internal_error(cause: &str) -> Self {
        Self {
            status: "Failure".to_owned(),
            message: format!("Internal error occurred: {cause}"),
            reason: "InternalError".to_owned(),
            details: Some(Details {
                causes: vec![Cause {
                    reason: String::new(),
                    message: cause.to_owned(),
                }],
            }),
            code: Some(500),
            ..Self::default()
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // serialization cannot fail
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn success() -> Self {
        Self {
            status: "Success".to_owned(),
            ..Self::default()
        }
    }

    fn protocol_error(what: &str) -> Self {
        Self::internal_error(&format!("error stream protocol error: {what}"))
    }

    /// Returns the status with the exit code of the causes.
    fn exit(self) -> Self {
        let Some(details) = self.details else {
            return Self::protocol_error("details must be set");
        };
        let mut causes = details.causes.into_iter();
        let Some(cause) = causes.find(|cause| cause.reason == EXIT_CODE) else {
            return Self::protocol_error("no ExitCode cause given");
        };
        let Ok(code) = cause.message.parse::<u8>() else {
            let words = format!("invalid exit code value {:?}", cause.message);
            return Self::protocol_error(&words);
        };
        Self {
            status: "Failure".to_owned(),
            message: format!(
                "command terminated with non-zero exit code: command terminated with exit code \
                 {code}"
            ),
            reason: NON_ZERO_EXIT_CODE.to_owned(),
            details: Some(Details {
                causes: vec![Cause {
                    reason: EXIT_CODE.to_owned(),
                    message: code.to_string(),
                }],
            }),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn runtime_statuses_map_to_upstream_statuses() {
        let internal = |cause: &str| {
            format!(
                "{{\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"Internal error occurred: \
                 {cause}\",\"reason\":\"InternalError\",\"details\":{{\"causes\":[{{\"message\":\
                 \"{cause}\"}}]}},\"code\":500}}"
            )
        };
        let success = "{\"metadata\":{},\"status\":\"Success\"}".to_owned();
        let exit = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"command terminated with \
                    non-zero exit code: command terminated with exit code 137\",\"reason\":\
                    \"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\
                    \"message\":\"137\"}]}}";
        let protocol = |what| internal(&format!("error stream protocol error: {what}"));
        let cases = [
            ("", success.clone()),
            (r#"{"metadata":{},"status":"Success"}"#, success),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","message":"x","details":
                    {"causes":[{"reason":"Other","message":"1"},{"reason":"ExitCode","message":"137"}]}}"#,
                exit.to_owned(),
            ),
            (
                r#"{"status":"Failure","reason":"InternalError","code":500,"message":"no such file"}"#,
                internal("no such file"),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                protocol("details must be set"),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{}}"#,
                protocol("no ExitCode cause given"),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":
                    {"causes":[{"reason":"ExitCode","message":"256"}]}}"#,
                protocol(r#"invalid exit code value \"256\""#),
            ),
            (r#"{"status":"?"}"#, protocol("unknown error")),
            (
                "1",
                protocol(
                    r#"invalid type: integer `1`, expected struct Status at line 1 column 1 in \"1\""#,
                ),
            ),
        ];
        for (message, expected) in cases {
            let json = Status::from_message(message.as_bytes()).to_json();
            assert_eq!(String::from_utf8_lossy(&json), expected, "{message}");
        }
    }
}
