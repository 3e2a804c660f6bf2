//! The memory that the process may use at most: the machine's memory, or less if its control group
//! has a limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The memory that is assumed if the system reports nothing.
const UNKNOWN: u64 = 1 << 30;

/// Returns the bytes of memory that the process may use: the lowest of the machine's memory and the
/// limits of its control group and of the groups above it (version 2, or version 1). Returns 1 GiB
/// if the system reports none of them.
pub fn available_memory() -> u64 {
    least(|path| fs::read_to_string(path).ok())
}

/// Returns the bytes of memory that the process has now (its resident set), or `None` if the system
/// does not report it.
pub fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes_of(&status, "VmRSS:")
}

fn least(read: impl Fn(&Path) -> Option<String>) -> u64 {
    let machine = read(Path::new("/proc/meminfo"));
    let machine = machine.and_then(|text| total_memory(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(limit_files);
    // A limit in words, such as "max", is no limit.
    let limits = limits.filter_map(|file| read(&file)?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

/// Returns `MemTotal` of `/proc/meminfo`, in bytes.
fn total_memory(text: &str) -> Option<u64> {
    kibibytes_of(text, "MemTotal:")
}

/// Returns the number of kB in the line of `text` that begins with `name`, in bytes.
fn kibibytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes: u64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the files with the limits of a control group and of the groups above it. `line` is a
/// line of `/proc/self/cgroup`: `0::PATH` in version 2, `NUMBER:CONTROLLERS:PATH` in version 1.
///
/// In a container, the path may be the path outside of the container. Then only the topmost file
/// exists, and it contains the container's limit.
fn limit_files(line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => (PathBuf::from(CGROUPS), "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            let root = Path::new(CGROUPS).join("memory");
            (root, "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let group = root.join(path.trim_start_matches('/'));
    let groups = group.ancestors();
    let within = groups.take_while(|group| group.starts_with(&root));
    within.map(|group| group.join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_a_line_of_the_status() {
        let status = "Name:\tkubefan\nVmPeak:\t  9 kB\nVmRSS:\t   5 kB\n";
        assert_eq!(kibibytes_of(status, "VmRSS:"), Some(5 * 1024));
        assert_eq!(kibibytes_of(status, "VmSwap:"), None);
    }

    /// Paths and contents.
    type Files = &'static [(&'static str, &'static str)];

    #[test]
    fn the_least_limit_counts() {
        const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:       4 kB\nMemFree: 1 kB\n");
        let rows: [(&str, Files, u64); 7] = [
            ("nothing is reported", &[], UNKNOWN),
            ("no control group", &[MEMINFO], 4096),
            (
                "version 2",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "1000\n"),
                ],
                1000,
            ),
            (
                "a group above has less",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "1000\n"),
                    ("/sys/fs/cgroup/a/memory.max", "900\n"),
                ],
                900,
            ),
            (
                "no limit",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/\n"),
                    ("/sys/fs/cgroup/memory.max", "max\n"),
                ],
                4096,
            ),
            (
                "a container whose path is that of the host",
                &[
                    ("/proc/self/cgroup", "0::/kubepods/x\n"),
                    ("/sys/fs/cgroup/memory.max", "700\n"),
                ],
                700,
            ),
            (
                "version 1",
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/a\n"),
                    ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "800\n"),
                    (
                        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                ],
                800,
            ),
        ];
        for (name, files, expected) in rows {
            let file = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path);
            let read = |path: &Path| file(path).map(|(_, text)| (*text).to_owned());
            assert_eq!(least(read), expected, "{name}");
        }
    }
}
