//! `logs`: prints the log of a container.

use std::io::{self, Write};

use windlass_node_proto::windlass_v1 as proto;
use windlass_types::PodExt;

use crate::args::LogsArgs;
use crate::client::Client;
use crate::error::Error;
use crate::pod;

pub(crate) async fn run(mut client: Client, args: &LogsArgs) -> Result<(), Error> {
    let view = pod::find(&mut client, &args.namespace, &args.pod).await?;
    let request = request(args, view.pod.name());
    let mut stream = client.log(request).await?;
    while let Some(message) = stream.message().await? {
        // do not hold the lock while waiting, for ^C
        let mut out = io::stdout().lock();
        out.write_all(&message.data)?;
        out.flush()?;
    }
    Ok(())
}

fn request(args: &LogsArgs, pod: &str) -> proto::ReadLogRequest {
    proto::ReadLogRequest {
        namespace: args.namespace.clone(),
        pod: pod.to_owned(),
        container: args.container.clone(),
        follow: args.follow,
        tail_lines: args.tail.map(i64::from),
        // rounded up: rather one line too many
        since_seconds: args.since.map(|since| {
            since
                .as_secs()
                .saturating_add(i64::from(since.subsec_nanos() > 0))
        }),
        timestamps: args.timestamps,
        previous: args.previous,
        limit_bytes: None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::request;
    use crate::args::{Arguments, Command};

    #[test]
    fn flags_are_converted_to_request() {
        let line = "windlassctl logs web -c app -f --tail 10 --since 1m500ms -n other -p";
        let arguments = Arguments::try_parse_from(line.split(' ')).expect("arguments");
        let Command::Logs(args) = arguments.command else {
            panic!("{arguments:?}");
        };
        let request = request(&args, "web-node-1");
        assert_eq!(
            (request.namespace.as_str(), request.pod.as_str()),
            ("other", "web-node-1")
        );
        assert_eq!(request.container, "app");
        assert_eq!(
            (request.tail_lines, request.since_seconds),
            (Some(10), Some(61))
        );
        assert!(request.follow && request.previous && !request.timestamps);
    }
}
