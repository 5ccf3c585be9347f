//! Serves one request against the state of the server.

use std::sync::Arc;

use ::http::Method;
use serde_json::{Value, json};
use windlass_types::Timestamp;

use crate::admit;
use crate::csr;
use crate::defaults::kind_of;
use crate::delete::{self, Deletion};
use crate::identity::{Access, User};
use crate::lag::Informers;
use crate::object::meta;
use crate::path::Target;
use crate::query::Query;
use crate::select::Selection;
use crate::server::{Shared, State};
use crate::status_error::StatusError;
use crate::store::Key;
use crate::subresources;
use crate::watch::Watching;
use crate::write;

/// A request whose body is read.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) content_type: String,
    pub(crate) body: Value,
    pub(crate) user: User,
}

impl ApiRequest {
    /// The method for matching faults.
    pub(crate) fn verb(&self) -> &str {
        match self.is_watch() {
            true => "WATCH",
            false => self.method.as_str(),
        }
    }

    fn is_watch(&self) -> bool {
        self.method == Method::GET && self.query.flag("watch") == Some(true)
    }
}

/// The response to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// One object with an HTTP status code.
    Object(u16, Arc<Value>),
    /// A stream of events.
    Events(Box<Watching>),
}

/// Serves a request.
pub(crate) fn serve(
    shared: &Arc<Shared>,
    state: &mut State,
    now: Timestamp,
    request: &ApiRequest,
) -> Result<Reply, StatusError> {
    match request.path.as_str() {
        "/healthz" | "/livez" | "/readyz" => return Ok(ok(json!("ok"))),
        "/version" => {
            let version = json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0-fake" });
            return Ok(ok(version));
        }
        _ => {}
    }
    let target = Target::parse(&request.path)?;
    if let Some(allowed) = &state.authorizer
        && !allowed(&request.user, &access(&target, request))
    {
        return Err(forbidden(&target, request));
    }
    if let Some(node) = request.user.node_name()
        && state.restricts_nodes
    {
        let lag = state.faults.informer_lag.as_mut();
        let informers = Informers {
            version: lag.map(|lag| lag.informer_version(now)),
            store: &state.store,
        };
        informers.authorize(node, &target, request, &access(&target, request))?;
        admit::admit_node(informers, node, &target, request)?;
    }
    match (&target.name, &request.method) {
        (None, &Method::POST) if target.resource == "tokenreviews" => {
            let answer = subresources::review_token(&state.tokens, now, &request.body);
            Ok(Reply::Object(201, answer))
        }
        (None, &Method::POST) if target.resource == "subjectaccessreviews" => Ok(Reply::Object(
            201,
            Arc::new(review_access(state, &request.body)),
        )),
        (None, &Method::DELETE) => delete_set(state, now, &target, request),
        (None, &Method::GET) => read_set(shared, state, &target, request),
        (None, &Method::POST) => create(shared, state, now, &target, request),
        (Some(name), method) => {
            let key = target.key(name);
            serve_object(state, now, &target, &key, method, request)
        }
        _ => Err(StatusError::method_not_allowed()),
    }
}

fn serve_object(
    state: &mut State,
    now: Timestamp,
    target: &Target,
    key: &Key,
    method: &Method,
    request: &ApiRequest,
) -> Result<Reply, StatusError> {
    let store = &mut state.store;
    let body = &request.body;
    match (method, target.subresource.as_deref()) {
        (&Method::GET, None | Some("status")) => {
            let object = store.get(key).ok_or_else(|| StatusError::not_found(key))?;
            Ok(Reply::Object(200, object))
        }
        (&Method::PUT, None | Some("status")) => {
            let existed = store.get(key).is_some();
            let object = write::update(store, now, target, key, body.clone())?;
            Ok(Reply::Object(if existed { 200 } else { 201 }, object))
        }
        (&Method::PATCH, None | Some("status")) => {
            let object = write::patch(store, target, key, &request.content_type, body)?;
            Ok(Reply::Object(200, object))
        }
        (&Method::DELETE, None) => {
            let options = with_query(body, &request.query);
            delete::delete(store, now, key, &options).map(|deletion| deleted(key, deletion))
        }
        (&Method::POST, Some("eviction")) if key.resource == "pods" => {
            let done = subresources::evict(store, now, key, body)?;
            Ok(Reply::Object(201, Arc::new(done)))
        }
        (&Method::POST, Some("binding")) if key.resource == "pods" => {
            let done = subresources::bind(store, now, key, body)?;
            Ok(Reply::Object(201, Arc::new(done)))
        }
        (&Method::POST, Some("token")) if key.resource == "serviceaccounts" => {
            let tokens = &mut state.tokens;
            let issued = subresources::issue_token(store, tokens, now, target, key, body)?;
            Ok(Reply::Object(201, issued))
        }
        _ => Err(StatusError::method_not_allowed()),
    }
}

fn create(
    shared: &Arc<Shared>,
    state: &mut State,
    now: Timestamp,
    target: &Target,
    request: &ApiRequest,
) -> Result<Reply, StatusError> {
    let mut object = request.body.clone();
    let is_csr = target.resource == "certificatesigningrequests";
    if is_csr {
        csr::on_create(&mut object, &request.user);
    }
    let object = write::create(&mut state.store, now, target, object)?;
    if is_csr && let Some(lifetime) = state.approves_csrs {
        let name = meta(&object, "name").unwrap_or_default();
        // a signing failure is recorded in the request itself
        let _ = csr::approve(&mut state.store, &shared.authority, now, name, lifetime);
    }
    Ok(Reply::Object(201, object))
}

/// Returns the attributes for the authorization hook.
fn access(target: &Target, request: &ApiRequest) -> Access {
    let is_set = target.name.is_none();
    let verb = match request.method {
        Method::GET if request.is_watch() => "watch",
        Method::GET if is_set => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_set => "deletecollection",
        _ => "delete",
    };
    Access {
        verb: verb.to_owned(),
        group: target.group.clone(),
        resource: target.resource.clone(),
        subresource: target.subresource.clone().unwrap_or_default(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone().unwrap_or_default(),
    }
}

fn forbidden(target: &Target, request: &ApiRequest) -> StatusError {
    let access = access(target, request);
    let scope = match access.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    StatusError::forbidden(format!(
        "{} is forbidden: User {:?} cannot {} resource {:?} in API group {:?} {scope}",
        target.key(&access.name).qualified(),
        request.user.name,
        access.verb,
        access.resource,
        access.group,
    ))
}

fn review_access(state: &State, review: &Value) -> Value {
    let spec = review.get("spec").cloned().unwrap_or_default();
    let allowed = state.access_rules.as_ref().is_none_or(|rule| rule(&spec));
    let mut answer = review.clone();
    crate::object::as_map(&mut answer).insert("status".to_owned(), json!({ "allowed": allowed }));
    answer
}

fn delete_set(
    state: &mut State,
    now: Timestamp,
    target: &Target,
    request: &ApiRequest,
) -> Result<Reply, StatusError> {
    let selection = selection(target, &request.query)?;
    let options = with_query(&request.body, &request.query);
    for (key, object) in state.store.list(&target.group, &target.resource) {
        if selection.matches(&key, &object) {
            delete::delete(&mut state.store, now, &key, &options)?;
        }
    }
    Ok(ok(
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
    ))
}

fn selection(target: &Target, query: &Query) -> Result<Selection, StatusError> {
    Selection::parse(
        &target.resource,
        target.namespace.as_deref(),
        query.get("fieldSelector").unwrap_or_default(),
        query.get("labelSelector").unwrap_or_default(),
    )
}

fn read_set(
    shared: &Arc<Shared>,
    state: &State,
    target: &Target,
    request: &ApiRequest,
) -> Result<Reply, StatusError> {
    let query = &request.query;
    let selection = selection(target, query)?;
    if request.is_watch() {
        let watching = Watching::begin(shared, state, target, selection, query)?;
        return Ok(Reply::Events(Box::new(watching)));
    }
    let asked = query.version()?;
    let stale = state.faults.stale.filter(|_| asked.is_some());
    let version = stale.unwrap_or(state.store.version());
    if let Some(asked) = asked.filter(|asked| *asked > version) {
        return Err(StatusError::too_new(asked, version));
    }
    let set = state
        .store
        .list_at(&target.group, &target.resource, version);
    let items: Vec<Value> = set
        .iter()
        .filter(|(key, object)| selection.matches(key, object))
        .map(|(_, object)| without_type(object))
        .collect();
    let kind = kind_of(&target.resource).unwrap_or_default();
    Ok(ok(json!({
        "kind": format!("{kind}List"),
        "apiVersion": target.api_version(),
        "metadata": { "resourceVersion": version.to_string() },
        "items": items,
    })))
}

/// Items of a list do not contain their type.
fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object {
        map.remove("kind");
        map.remove("apiVersion");
    }
    object
}

/// Options of a deletion may also be in the query.
fn with_query(body: &Value, query: &Query) -> Value {
    let mut options = body.clone();
    let grace = query
        .get("gracePeriodSeconds")
        .and_then(|s| s.parse::<i64>().ok());
    if let Some(grace) = grace {
        crate::object::as_map(&mut options).insert("gracePeriodSeconds".to_owned(), json!(grace));
    }
    options
}

/// Returns the pod, or a `Status` for other types.
fn deleted(key: &Key, deletion: Deletion) -> Reply {
    match deletion {
        Deletion::Gone(object) if key.resource == "pods" => Reply::Object(200, object),
        Deletion::Pending(object) => Reply::Object(200, object),
        Deletion::Gone(object) => ok(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {
                "name": key.name,
                "kind": key.resource,
                "uid": meta(&object, "uid"),
            },
        })),
    }
}

fn ok(value: Value) -> Reply {
    Reply::Object(200, Arc::new(value))
}
