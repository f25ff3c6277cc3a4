//! The placement and scaling libraries, as the state machine asks them. Their decisions are proposals: what has no room is never
//! reserved, and counts and shares stay within the service's bounds.

mod placing;
mod scaling;

pub use self::placing::ByPolicy;
pub use self::scaling::ByScaler;

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::super::config::Config;
    use super::super::model::Service;
    use crate::profile::Profile;

    // 70 of 120 ms are the host's: by its kernels alone it would do 94 requests/s at 30 %.
    const PROFILE: &str = "version = 1\nname = \"s\"\nkind = \"inference\"\nrequest = \"30%\"\nlimit = \"60%\"\nmemory = \"1GiB\"\n\
                       [throughput]\nunit = \"requests/s\"\nalone = 66.7\nat_request = 40.6\ngpu_ms = 6.25\n\
                       [inference]\nbatch = 8\nslo = \"p95 < 200ms\"\nlatency_ms = 197.0\nlatency_alone_ms = 120.0\n\
                       [copies]\nhost_to_device_gb_s = 0.0\ndevice_to_host_gb_s = 0.0\n\
                       [stalls]\ncompute = 0.42\ncommunication = 0.0\ncopies = 0.0\nneighbour = 0.0\ngate = 0.0\n\
                       host = 0.58\nbubble = 0.58\n\
                       [measured]\ndevice = \"d\"\nsimulated = true\ndate = \"2026-11-26\"\ncommand = [\"c\"]\n\
                       [[measured.probe]]\nshare = \"30%\"\nbatch = 8\nthroughput = 40.6\ndeviation = 0.1\nlatency_ms = 197.0\n\
                       [[measured.probe]]\nshare = \"100%\"\nbatch = 8\nthroughput = 66.7\ndeviation = 0.1\nlatency_ms = 120.0\n";

    /// A server that its host keeps from the GPU for most of the time.
    pub fn profile() -> Profile {
        Profile::parse(PROFILE, Path::new("s.toml")).unwrap()
    }

    /// A service with as little as a file can say of it.
    pub fn service(name: &str) -> Service {
        let text = format!(
            "dir = \"x\"\n[[node]]\nname = \"n\"\ndir = \"/n\"\n[[service]]\nname = \"{name}\"\n\
             command = [\"c\", \"{{port}}\"]\nrequest = \"30%\"\nmemory = \"1GiB\"\n"
        );
        let config = Config::parse(&text, Path::new("cluster.toml")).unwrap();
        config.fleet.services[0].clone()
    }
}
