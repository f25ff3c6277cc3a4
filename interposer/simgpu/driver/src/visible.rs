//! Which devices a process sees: `CUDA_VISIBLE_DEVICES`, by number or by UUID.

/// The places of the visible devices, in the order asked for. As with a driver the list ends at the first
/// entry that names no device, or one already named; no list means all.
pub fn places(wanted: Option<&str>, uuids: &[String]) -> Vec<usize> {
    let Some(wanted) = wanted else { return (0..uuids.len()).collect() };
    let mut places = Vec::new();
    for entry in wanted.split(',').map(str::trim) {
        match place(entry, uuids) {
            Some(place) if !places.contains(&place) => places.push(place),
            _ => break,
        }
    }
    places
}

/// The device with this number, or the only one whose UUID begins like this.
fn place(entry: &str, uuids: &[String]) -> Option<usize> {
    if let Ok(number) = entry.parse::<usize>() {
        return (number < uuids.len()).then_some(number);
    }
    let begins = |uuid: &&String| entry.starts_with("GPU-") && uuid.starts_with(entry);
    let mut fitting = uuids.iter().filter(begins);
    let found = fitting.next().filter(|_| fitting.next().is_none())?;
    uuids.iter().position(|uuid| uuid == found)
}

#[cfg(test)]
mod tests {
    use super::places;

    fn of(wanted: Option<&str>) -> Vec<usize> {
        places(wanted, &["GPU-aa".into(), "GPU-ab".into(), "GPU-b".into()])
    }

    #[test]
    fn without_a_list_every_device_is_visible() {
        assert_eq!(of(None), [0, 1, 2]);
    }

    #[test]
    fn the_list_orders_the_devices_and_ends_at_the_first_bad_entry() {
        assert_eq!(of(Some("2,0")), [2, 0]);
        assert_eq!(of(Some("1,7,0")), [1]);
        assert_eq!(of(Some("1,1,0")), [1]);
        assert_eq!(of(Some("")), [0_usize; 0]);
        assert_eq!(of(Some("-1")), [0_usize; 0]);
    }

    #[test]
    fn a_uuid_may_be_cut_short_while_it_names_one_device() {
        assert_eq!(of(Some("GPU-b,GPU-ab")), [2, 1]);
        assert_eq!(of(Some("GPU-a")), [0_usize; 0]);
    }
}
