//! Each mistake of `src/mistakes.in` is caught by the model that is named beside it.

use onecho_shuttle::run::is_caught;

macro_rules! catch {
    ($($mistake:ident by $model:ident in $($module:ident)::+),* $(,)?) => {$(
        #[test]
        fn $mistake() {
            is_caught(onecho_shuttle::$mistake::$($module)::+::$model);
        }
    )*};
}

catch! {
    forgets_to_hand_over by each_is_answered_once in queue::model,
    keeps_the_lead_for_nobody by each_is_answered_once in queue::model,
    rings_before_it_tells by each_is_answered_once in queue::model,
    looks_before_it_listens by each_is_answered_once in queue::model,
    two_may_lead by each_is_answered_once in queue::model,
    forgets_the_shared_bell by each_is_answered_once in queue::model,
    lets_nobody_in by a_full_queue_lets_everybody_in in queue::model,
    lets_one_in_instead_of_all by who_came_first_is_written_first in queue::model,
    the_small_pass_the_large by who_came_first_is_written_first in queue::model,
    room_without_bounds by who_came_first_is_written_first in queue::model,
    losers_stand_behind by who_lost_is_written_first in queue::model,
    losers_pass_each_other by who_lost_is_written_first in queue::model,
    leaves_a_hole by who_gives_up_leaves_no_hole in queue::model,
    gives_up_what_is_queued by who_gives_up_is_answered_or_not_written in queue::model,
    abandons_its_batch by a_leader_that_dies_leaves_nobody_waiting in queue::model,
    unwinds_with_the_lead by a_leader_that_dies_leaves_nobody_waiting in queue::model,
    wakes_one_of_a_place by all_who_wait_for_a_place_are_told in waiting,
    ends_a_place_in_silence by all_who_wait_for_a_place_are_told in waiting,
    rings_a_place_before_its_end by all_who_wait_for_a_place_are_told in waiting,
    a_place_for_two by all_who_wait_for_a_place_are_told in waiting,
    forgets_that_a_place_ended by all_who_wait_for_a_place_are_told in waiting,
    frees_the_place_of_another by who_is_overdue_does_not_free_the_place_of_another in waiting,
    a_bench_for_each by all_who_wait_for_a_place_are_told in waiting,
    takes_an_overdue_place_in_silence by who_waits_for_the_overdue_is_told_of_the_next in waiting,
    calls_nobody_to_its_turn by each_comes_to_its_turn in waiting,
    waits_for_two_turns by nobody_has_two_turns in waiting,
}
