//! Triggers and PSI files in the kernel's format.
//!
//! The texts are the kernel's; the properties hold for any text.
//!
//! A format of a new kernel version is added as text, and the old ones stay.

use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

fn stall() -> impl Strategy<Value = Stall> {
    (0..=10_000_u32, 0..=10_000_u32, 0..=10_000_u32, any::<u64>()).prop_map(|(a, b, c, total_us)| Stall {
        avg10_hundredths: a,
        avg60_hundredths: b,
        avg300_hundredths: c,
        total_us,
    })
}

proptest! {
    #[test]
    fn a_formatted_psi_text_parses_to_the_same_value(some in stall(), full in stall()) {
        let stalls = Stalls { some, full };
        prop_assert_eq!(Stalls::parse(&stalls.to_string()), Ok(stalls));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text: String) {
        fuzz(text.as_bytes());
    }

    #[test]
    fn any_nearly_valid_text_is_parsed_or_refused(stalls in (stall(), stall()), at: proptest::sample::Index, byte: u8) {
        let (some, full) = stalls;
        let mut bytes = Stalls { some, full }.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        fuzz(&bytes);
    }

    #[test]
    fn triggers_are_within_the_kernels_bounds(stall_us in 0..20_000_000_u64, window_us in 0..20_000_000_u64) {
        let (stall, window) = (Duration::from_micros(stall_us), Duration::from_micros(window_us));
        let fits = (500_000..=10_000_000).contains(&window_us) && (1..=window_us).contains(&stall_us);
        let made = Trigger::some(stall, window);
        prop_assert_eq!(made.is_ok(), fits);
        if let Ok(trigger) = made {
            prop_assert_eq!(trigger.to_string(), format!("some {stall_us} {window_us}"));
            prop_assert_eq!((trigger.stall(), trigger.window()), (stall, window));
            prop_assert_eq!(trigger.is_unprivileged(), window_us % 2_000_000 == 0);
        }
    }
}

#[test]
fn errors_name_the_field_and_what_to_do() {
    let error = Stalls::parse("some avg10=1,25 avg60=0.00 avg300=0.00 total=1\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "field `some avg10`: found \"1,25\", expected a percentage with two decimals, such as 1.25"
    );
    let error = Stalls::parse("some avg10=1.25 avg60=0.00 avg300=0.00 total=1\n").unwrap_err();
    assert_eq!(error.field, "full");
    let error = Trigger::some(Duration::from_millis(1), Duration::from_secs(11)).unwrap_err();
    assert!(error.to_string().contains("multiple of 2 s"));
}

#[test]
fn a_cgroup_is_watched_in_its_own_file() {
    let trigger = Trigger::full(Duration::from_millis(1), Duration::from_secs(1)).unwrap();
    assert_eq!(Psi::cgroup("/sys/fs/cgroup/a/", trigger).file, PsiFile::At("/sys/fs/cgroup/a/memory.pressure".into()));
    assert_eq!(trigger.level(), Level::Critical);
    assert!(!trigger.is_unprivileged());
}
