//! What must hold under every schedule.

use onecho_shuttle::run::holds;
use onecho_shuttle::sound::queue::model as queue;
use onecho_shuttle::sound::waiting;

macro_rules! hold {
    ($($model:ident in $module:ident),* $(,)?) => {$(
        #[test]
        fn $model() {
            holds($module::$model);
        }
    )*};
}

hold! {
    each_is_answered_once in queue,
    a_full_queue_lets_everybody_in in queue,
    who_came_first_is_written_first in queue,
    who_lost_is_written_first in queue,
    who_gives_up_leaves_no_hole in queue,
    who_gives_up_is_answered_or_not_written in queue,
    a_leader_that_dies_leaves_nobody_waiting in queue,
    all_who_wait_for_a_place_are_told in waiting,
    a_place_left_free_is_taken_again in waiting,
    who_is_overdue_does_not_free_the_place_of_another in waiting,
    who_waits_for_the_overdue_is_told_of_the_next in waiting,
    each_comes_to_its_turn in waiting,
    nobody_has_two_turns in waiting,
}
