//! The embedded controller: services on this machine's GPUs and on a static list of other node managers.
//!
//! ```text
//!   model      what there is: services, nodes, instances with their states and budgets
//!   order      what is to be done on a node, and what came of it
//!   route      which instance answers which requests, and what the gateway says of them
//!   room       what is free on each GPU, by what is reserved
//!   policies   the placement and scaling libraries behind those traits
//!   work       what a request is predicted to take
//!   measure    how much slower instances run beside each other, by what nodes say of their time
//!   shift      how much best-effort work each site may have now, by carbon and power caps
//!   decide     where an instance goes and how many there are: small traits, and the plainest of each
//!   machine    the state machine: reports, answers and traffic in; writes, orders and routes out
//!   store      what outlives a SIGKILL: one file
//!   config     cluster.toml
//!   instance   one instance on a node: started once, ended for good
//!   node       what a node manager tells, and how orders reach it
//!   gateway    requests over HTTP to instances, as a process of its own
//!   serve      the controller's process, which ties these together
//! ```
//!
//! `model` to `machine` are pure: time comes in, nothing goes out but values. Two rules make them safe:
//!
//! * What is decided is written before it is carried out, and carrying it out twice changes nothing.
//! * A slice is reserved from the decision to start an instance until its node has said that it has ended *and can never
//!   start again*: a node that is silent keeps what it may still be using.

pub mod config;
pub mod decide;
pub mod gateway;
pub mod instance;
mod machine;
pub mod measure;
pub mod model;
pub mod node;
pub mod order;
pub mod policies;
pub mod room;
pub mod route;
pub mod serve;
pub mod shift;
pub mod store;
pub mod work;

pub use machine::{Controller, Kept, Standing, Turn, Write};
