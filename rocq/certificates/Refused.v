(* False steps and false closings: each of these must evaluate to false. *)
From Coq Require Import List ZArith QArith Bool.
From Klsym Require Import Setting Ring Statements Rules Checker Completeness Combinations Models Fields Scripts.
Import ListNotations.
Local Open Scope nat_scope.

Definition k1 : ep := var_ (Sample Whole K1 false).
Definition sg_k1 : ep := var_ (Sample Whole K1 true).
Definition rho : ep := exp_ [(1%Q, [(Sample Whole W false, 1%Z)])].
Definition sg_rho : ep := exp_ [(1%Q, [(Sample Whole W true, 1%Z)])].
Definition k3 : ep := add (exp_ [((-1)%Q, [(Sample Whole K1 false, 1%Z)])]) (sub k1 one).
Definition reward : ep := var_ (Sample Whole (Given 0) false).
Definition nothing : assumptions := Assume (Premises [] [] None [] []) [] [].
Definition is (a b : side) (l : list (side * rule)) : bool := check (Script nothing [Part a b Equal [] l] Proved).
Definition below (a : assumptions) (x y : side) (r : list row) : bool := check (Script a [Part x y AtMost r []] Proved).
Definition c1 : side := [(one, [])].
Definition m1 : side := [(opp one, [])].
Definition reverse : side := [(one, [Gradient [(one, Some (Single, Mq, k1))]])].

(* what is right, so that these tests can fail *)
Example accepted_k1 : is (only (MeanGradient Single Mq k1)) [] [(m1, ChainRule Single Mq k1); (m1, ScoreMeanZero Single Whole one)] = true.
Proof. now vm_compute. Qed.
Example accepted_norm : is (only (Mean Single Mq one)) c1 [(m1, Normalisation Single Mq one)] = true.
Proof. now vm_compute. Qed.
Example accepted_row : below nothing [] (only (Mean Single Mq (mul k1 k1))) [Row (Square None) (1%Q, [], []) one Single Mq [] k1] = true.
Proof. now vm_compute. Qed.

(* ---------- rules ---------- *)
Example score_of_a_random_coefficient : is (only (Mean Single Mq (times_score k1))) [] [(m1, ScoreMeanZero Single Whole k1)] = false.
Proof. now vm_compute. Qed.
Example score_of_a_reward : is (only (Mean Single Mq (times_score reward))) [] [(m1, ScoreMeanZero Single Whole reward)] = false.
Proof. now vm_compute. Qed.
Example score_under_another_measure : is (only (Mean Single Mp (times_score one))) [] [(m1, ScoreMeanZero Single Whole one)] = false.
Proof. now vm_compute. Qed.
Example two_scores : is (only (Mean Single Mq (times_score (times_score one)))) [] [(m1, ScoreMeanZero Single Whole one)] = false.
Proof. now vm_compute. Qed.
Example normalisation_of_counting : is (only (Mean Single Mcount one)) c1 [(m1, Normalisation Single Mcount one)] = false.
Proof. now vm_compute. Qed.
Example normalisation_of_a_log_ratio :
  is (only (Mean Single Mq k1)) [] [(m1, Normalisation Single Mq k1)] = false /\
  is (only (Mean Single Mq k1)) [(k1, [])] [(m1, Normalisation Single Mq k1)] = false.
Proof. now vm_compute. Qed.
Example ratio_times_a_random_factor :
  is (only (Mean Single Mmu (mul reward rho))) (only (Mean Single Mmu reward)) [(m1, RatioMeanOne Single Whole Mmu Mq reward)] = false.
Proof. now vm_compute. Qed.
Example ratio_under_the_wrong_measure :
  is (only (Mean Single Mq rho)) (only (Mean Single Mq one)) [(m1, RatioMeanOne Single Whole Mq Mmu one)] = false.
Proof. now vm_compute. Qed.
Definition q_to (c : Q) : ep := exp_ [(c, [(Sample Whole LogQ false, 1%Z)])].
Definition changed (m n : measure) (a b : ep) : bool :=
  is (only (Mean Single m a)) (only (Mean Single n b)) [(m1, ChangeOfMeasure Single m n a)].
Example change_to_counting : changed Mq Mcount k1 (mul k1 (q_to 1)) = true. Proof. now vm_compute. Qed.
Example change_of_a_value : (* nor to one, with the ratio of the densities *)
  changed Msample Mq k1 k1 = false /\ changed Msample Mq k1 (mul k1 (q_to (-1))) = false /\ changed Mq Msample k1 (mul k1 (q_to 1)) = false.
Proof. now vm_compute. Qed.
Definition ratio_is_one (m n : measure) (a : ep) : bool :=
  is (only (Mean Single m a)) (only (Mean Single m one)) [(m1, RatioMeanOne Single Whole m n one)].
Example ratio_of_no_distribution : (* sum_x 1, the density at a sample, and sum_x q against sum_x 1 *)
  ratio_is_one Mmu Mq rho = true /\ ratio_is_one Mq Mcount (q_to (-1)) = false /\ ratio_is_one Msample Mq (q_to 1) = false /\
  ratio_is_one Mcount Mq (q_to 1) = false.
Proof. now vm_compute. Qed.
Example change_without_the_ratio : is (only (Mean Single Mmu k1)) (only (Mean Single Mq k1)) [(m1, ChangeOfMeasure Single Mmu Mq k1)] = false.
Proof. now vm_compute. Qed.
Example log_derivative_without_the_score :
  is reverse (only (MeanGradient Single Mq k1)) [(m1, LogDerivative [(one, Some (Single, Mq, k1))])] = false.
Proof. now vm_compute. Qed.
Example a_detached_quantity_has_no_gradient :
  is (only (MeanGradient Single Mq (mul sg_k1 k1))) (only (Mean Single Mq (times_score (mul (konst 2) k1)))) [(m1, ChainRule Single Mq (mul sg_k1 k1))] = false.
Proof. now vm_compute. Qed.
Example stop_gradient_under_a_gradient :
  is (only (MeanGradient Single Mq sg_k1)) (only (MeanGradient Single Mq k1)) [(m1, StopGradient Single Mq sg_k1)] = false.
Proof. now vm_compute. Qed.
Example the_detach_trap : (* E_mu[grad sg(rho) k3] is not grad KL(q||p) *)
  let L := mul sg_rho k3 in
  is (only (MeanGradient Single Mmu L)) reverse
    [(m1, ChainRule Single Mmu L); (m1, ChangeOfMeasure Single Mmu Mq (attach (derivative L))); (c1, LogDerivative [(one, Some (Single, Mq, k1))]);
     (c1, ChainRule Single Mq k1); (c1, ScoreMeanZero Single Whole one)] = false.
Proof. now vm_compute. Qed.
Example no_premise : is (only (Mean Single Mq k1)) [] [(m1, Premise 0)] = false.
Proof. now vm_compute. Qed.
Example no_premise_for_every_theta : is reverse [] [(m1, PremiseGradient 0)] = false.
Proof. now vm_compute. Qed.
Example nothing_is_cited : is (only (Mean Single Mq k1)) [] [(m1, Cited 0)] = false.
Proof. now vm_compute. Qed.
Example a_part_cites_itself :
  let p := Part (only (Mean Single Mq k1)) [] Equal [] [(m1, Cited 0)] in check (Script nothing [p; p] Proved) = false.
Proof. now vm_compute. Qed.
Example an_inequality_is_no_equation :
  let p := Part [] (only (Mean Single Mq (mul k1 k1))) AtMost [Row (Square None) (1%Q, [], []) one Single Mq [] k1] [] in
  let q := Part [] (only (Mean Single Mq (mul k1 k1))) Equal [] [(c1, Cited 0)] in
  check (Script nothing [p] Proved) = true /\ check (Script nothing [p; q] Proved) = false.
Proof. now vm_compute. Qed.
(* a parameter that may be 0 does not cancel *)
Definition over (nz : bool) : ep := [(1%Q, [(Par 0 nz, (-1)%Z); (Par 0 nz, 1%Z)], [])].
Example what_is_not_zero_cancels : is [(over true, [])] c1 [] = true. Proof. now vm_compute. Qed.
Example zero_over_zero : is [(over false, [])] c1 [] = false. Proof. now vm_compute. Qed.

(* ---------- rows ---------- *)
Definition par : ep := var_ (Par 0 true).
Definition square : ep := mul k1 k1.
Definition row_with (t : term) : row := Row (Square None) t one Single Mq [] k1.
Example negative_scale : below nothing [] (only (Mean Single Mq (opp square))) [row_with ((-1)%Q, [], [])] = false.
Proof. now vm_compute. Qed.
Example zero_scale : below nothing [] [] [row_with (0%Q, [], [])] = false.
Proof. now vm_compute. Qed.
Example parameter_of_unknown_sign :
  below nothing [] (only (Mean Single Mq (mul par square))) [row_with (1%Q, [(Par 0 true, 1%Z)], [])] = false.
Proof. now vm_compute. Qed.
Example positive_parameter :
  below (Assume (Premises [] [] None [] []) [0] []) [] (only (Mean Single Mq (mul par square))) [row_with (1%Q, [(Par 0 true, 1%Z)], [])] = true.
Proof. now vm_compute. Qed.
Example random_factor : let r := Row (Square None) (1%Q, [], []) k1 Single Mq [] k1 in
  below nothing [] (only (Mean Single Mq (mul square square))) [r] = false /\ below nothing [] [(square, [Mean Single Mq square])] [r] = false.
Proof. now vm_compute. Qed.
Example random_scale : below nothing [] (only (Mean Single Mq (mul k1 square))) [row_with (1%Q, [(Sample Whole K1 false, 1%Z)], [])] = false.
Proof. now vm_compute. Qed.
Example tangent_with_the_wrong_sign :
  below nothing (only (Mean Single Mq k3)) [] [Row Tangent (1%Q, [], []) one Single Mq [] (opp k1)] = false.
Proof. now vm_compute. Qed.
Example variance_of_counting :
  below nothing [(one, [Mean Single Mcount k1; Mean Single Mcount k1])] (only (Mean Single Mcount square))
    [Row Variance (1%Q, [], []) one Single Mcount [] k1] = false.
Proof. now vm_compute. Qed.
Example variance_of_probability :
  below nothing [(one, [Mean Single Mq k1; Mean Single Mq k1])] (only (Mean Single Mq square)) [Row Variance (1%Q, [], []) one Single Mq [] k1] = true.
Proof. now vm_compute. Qed.
Example region_of_another_measure :
  below (Assume (Premises [] [] None [] []) [] [(Mp, k1)]) [] (only (Mean Single Mq (mul k1 square)))
    [Row (Square (Some 0)) (1%Q, [], []) one Single Mq [] k1] = false.
Proof. now vm_compute. Qed.
Example rows_in_an_equation :
  check (Script nothing [Part [] (only (Mean Single Mq square)) Equal [row_with (1%Q, [], [])] []] Proved) = false.
Proof. now vm_compute. Qed.

(* ---------- models ---------- *)
Definition model_of (a b c : list Q) : model := Model [([], Node a b c c [1%Q; 0%Q] [] [])] [0] [].
Definition refuted (l : side) (r : side) (m : model) : bool := check (Script nothing [Part l r Equal [] []] (Refuted m)).
Definition half := [(1 # 2)%Q; (1 # 2)%Q].
Definition skew := [(1 # 4)%Q; (3 # 4)%Q].
Example a_model : refuted (only (Mean Single Mq k1)) [] (model_of half skew half) = true. Proof. now vm_compute. Qed.
(* exp of a parameter, of a reward, and of a share of a log ratio: exp 1 is between 2.71828 and 2.71829 *)
Definition paying : model := Model [([], Node half skew half half [1%Q; 0%Q] [] [[1%Q; 1%Q]])] [0] [1%Q].
Definition e_to_parameter : side := [(exp_ [(1%Q, [(Par 0 false, 1%Z)])], [])].
Definition e_to_reward : side := only (Mean Single Mq (exp_ [(1%Q, [(Sample Whole (Given 0) false, 1%Z)])])).
Definition number (c : Q) : side := [(konst c, [])].
Example exp_of_a_parameter : refuted e_to_parameter (number (271828 # 100000)) paying = true. Proof. now vm_compute. Qed.
Example exp_of_a_reward : refuted e_to_reward (number (271829 # 100000)) paying = true. Proof. now vm_compute. Qed.
Example a_true_equation_of_exps : refuted e_to_reward e_to_parameter paying = false. Proof. now vm_compute. Qed.
Example exp_is_not_below :
  check (Script nothing [Part (number (271828 # 100000)) e_to_parameter AtMost [] []] (Refuted paying)) = false /\
  check (Script nothing [Part (number (271829 # 100000)) e_to_parameter AtMost [] []] (Refuted paying)) = true.
Proof. now vm_compute. Qed.
Definition root : ep := exp_ [((1 # 2)%Q, [(Sample Whole K1 false, 1%Z)])].
Example a_square_root : refuted (only (Mean Single Mp root)) c1 (model_of half skew half) = true. Proof. now vm_compute. Qed.
Example a_root_of_one : refuted (only (Mean Single Mp root)) c1 (model_of half half half) = false. Proof. now vm_compute. Qed.
Example q_is_p : refuted (only (Mean Single Mq k1)) [] (model_of half half half) = false. Proof. now vm_compute. Qed.
Example not_one : refuted (only (Mean Single Mq k1)) [] (model_of half [(1 # 4)%Q; (1 # 4)%Q] half) = false.
Proof. now vm_compute. Qed.
Example negative : refuted (only (Mean Single Mq k1)) [] (model_of half [(-1 # 4)%Q; (5 # 4)%Q] half) = false.
Proof. now vm_compute. Qed.
Example no_support : refuted (only (Mean Single Mq k1)) [] (model_of half [0%Q; 1%Q] half) = false. Proof. now vm_compute. Qed.
Example lengths_differ : refuted (only (Mean Single Mq k1)) [] (model_of half [1%Q] half) = false. Proof. now vm_compute. Qed.
Example a_true_equation : refuted (only (Mean Single Mq one)) c1 (model_of half skew half) = false. Proof. now vm_compute. Qed.
Example a_gradient_is_not_enclosed : refuted reverse [] (model_of half skew half) = false. Proof. now vm_compute. Qed.
Example premises_are_not_modelled :
  check (Script (Assume (Premises [(only (Mean Single Mq k1), [])] [] None [] []) [] []) [Part (only (Mean Single Mq k1)) [] Equal [] []]
    (Refuted (model_of half skew half))) = false.
Proof. now vm_compute. Qed.

(* ---------- the only functions ---------- *)
Definition g0 : ep := var_ (Sample Whole (Fn 0 0) false).
Definition g1 : ep := var_ (Sample Whole (Fn 0 1) false).
Definition only_if (a : assumptions) (m : measure) (c : ep) (f : family) : bool :=
  check (Script a [Part (only (Mean Single m (times_score c))) [] Equal [] []] (Unique f)).
Definition score_form : ep := sub g0 k1.      (* E_q[(g - k1) s] = 0 iff g = k1 + a *)
Definition loss_form : ep := sub g1 k1.       (* E_q[(g' - k1) s] = 0 iff g = k1^2/2 + a + b k1 *)
Definition half_square : ep := scale ((1 # 2)%Q, [], []) (mul k1 k1).
Example one_constant : only_if nothing Mq score_form (Family score_form false one 1 k1 [0]) = true. Proof. now vm_compute. Qed.
Example two_constants : only_if nothing Mq loss_form (Family loss_form false one 2 half_square [0; 1]) = true. Proof. now vm_compute. Qed.
Example a_constant_too_few : only_if nothing Mq loss_form (Family loss_form false one 1 half_square [0]) = false. Proof. now vm_compute. Qed.
Example a_constant_too_many : only_if nothing Mq score_form (Family score_form false one 2 k1 [0; 1]) = false. Proof. now vm_compute. Qed.
Example one_constant_twice : only_if nothing Mq loss_form (Family loss_form false one 2 half_square [0; 0]) = false.
Proof. now vm_compute. Qed.
Example another_family : only_if nothing Mq loss_form (Family loss_form false one 2 (mul k1 k1) [0; 1]) = false. Proof. now vm_compute. Qed.
Example another_equation : only_if nothing Mq score_form (Family loss_form false one 2 half_square [0; 1]) = false.
Proof. now vm_compute. Qed.
Example under_another_measure : only_if nothing Mp score_form (Family score_form false one 1 k1 [0]) = false. Proof. now vm_compute. Qed.
Example a_family_beyond_k1 :
  let w := var_ (Sample Whole W false) in only_if nothing Mq (sub g0 w) (Family (sub g0 w) false one 1 w [0]) = false.
Proof. now vm_compute. Qed.
Example a_constant_in_the_equation :
  let c := sub g0 (var_ (Par 0 false)) in only_if nothing Mq c (Family c false one 1 (var_ (Par 0 false)) [0]) = false.
Proof. now vm_compute. Qed.
Example a_unit_that_is_zero : only_if nothing Mq score_form (Family score_form false [] 1 k1 [0]) = false. Proof. now vm_compute. Qed.
Example what_does_not_solve_it : (* g - k1 + w is constant for no function of k1 *)
  let c := add score_form (var_ (Sample Whole W false)) in only_if nothing Mq c (Family c false one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example a_function_in_an_exponent :
  let c := exp_ [(1%Q, [(Sample Whole (Fn 0 0) false, 1%Z)])] in only_if nothing Mq c (Family c false c 1 [] [0]) = false.
Proof. now vm_compute. Qed.
Example where_premises_narrow_the_settings :
  only_if (Assume (Premises [(only (Mean Single Mq k1), [])] [] None [] []) [] []) Mq score_form (Family score_form false one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example along_w : (* E_q[(w + g - k1 - (w - k1)) s], by no derivative along w *)
  only_if nothing Mq score_form (Family score_form true one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example a_condition_along_w : (* E_q[(g - k1) w s] = 0 iff g = k1 *)
  let c := mul (sub g0 k1) (var_ (Sample Whole W false)) in
  only_if nothing Mq c (Family c true one 0 k1 []) = true /\ only_if nothing Mq c (Family c true one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.

(* ---------- no combination ---------- *)
Definition apart_from_all (m : measure) (c : ep) (x : witness) : bool :=
  check (Script nothing [Part (only (Mean Single m (times_score c))) [] Equal [] []] (Independent x)).
Definition w_ : ep := var_ (Sample Whole W false).
Definition none_of (c : ep) : bool :=   (* whatever it is derived along *)
  existsb (fun ops => existsb (fun b => apart_from_all Mq c (Witness c b ops)) [true; false])
    [[]; [true]; [false]; [true; true]; [true; false]; [false; true]; [false; false]; [false; false; false]].
Example what_is_no_combination : none_of w_ = true /\ none_of (mul k1 k1) = true /\ none_of (mul k1 r_) = true /\ none_of rho = true.
Proof. now vm_compute. Qed.
Example combinations : none_of k1 = false /\ none_of r_ = false /\ none_of (add (mul (konst 3) k1) (add r_ one)) = false /\ none_of one = false.
Proof. now vm_compute. Qed.
Example rewards_are_allowed : none_of reward = false /\ none_of (mul reward reward) = false. Proof. now vm_compute. Qed.
Example a_multiple_that_may_be_zero : none_of (mul (var_ (Par 0 false)) w_) = false /\ none_of (mul (var_ (Par 0 true)) w_) = true.
Proof. now vm_compute. Qed.
Example another_measure : apart_from_all Mmu w_ (Witness w_ true []) = false. Proof. now vm_compute. Qed.
Example another_element : apart_from_all Mq k1 (Witness w_ true []) = false. Proof. now vm_compute. Qed.

(* ---------- batches ---------- *)
Definition sized : assumptions := Assume (Premises [] [] (Some (0, true)) [] []) [] [].   (* n is parameter 0 *)
Definition at_ (z : slot) (b : base) : ep := var_ (Sample z b false).
Definition n_less (c : Q) : ep := sub (var_ (Par 0 true)) (konst c).
Definition unit_term (m : mon) : term := (1%Q, m, []).
Definition batch_is (a : assumptions) (x y : side) (l : list (side * rule)) : bool :=
  check (Script a [Part x y Equal [] l] Proved).
Definition paid_by (z : slot) : var * Z := (Sample z (Given 0) false, 1%Z).
Definition of_others (k : Z) : term := unit_term [paid_by Self; (Sample Others K1 false, k)].
Definition of_rest : term := unit_term [paid_by Self; paid_by Other; (Sample Rest K1 false, 1%Z)].
Definition both (y z : slot) (b : base) : term := unit_term [(Sample y K1 false, 1%Z); (Sample z b false, 1%Z)].
Definition paid_ : atom := Mean Single Mq reward.
Definition mean_k1 : atom := Mean Single Mq k1.
Definition apart (a : assumptions) (i : index) (t : term) (y : side) : bool :=
  batch_is a (only (Mean i Mq [t])) y [(m1, Independence i Mq t)].
Example sum_over_others : apart sized Batch (of_others 1) [(n_less 1, [paid_; mean_k1])] = true. Proof. now vm_compute. Qed.
Example others_are_not_n : apart sized Batch (of_others 1) [(n_less 0, [paid_; mean_k1])] = false. Proof. now vm_compute. Qed.
Example rest_of_two : apart sized Pair of_rest [(n_less 2, [paid_; paid_; mean_k1])] = true. Proof. now vm_compute. Qed.
Example rest_are_not_others : apart sized Pair of_rest [(n_less 1, [paid_; paid_; mean_k1])] = false. Proof. now vm_compute. Qed.
Example size_unknown : apart nothing Batch (of_others 1) [(n_less 1, [paid_; mean_k1])] = false. Proof. now vm_compute. Qed.
Example nothing_of_the_others : (* needs no n; what is detached stays so *)
  apart nothing Batch (unit_term [(Sample Self K1 true, 1%Z)]) (only (Mean Single Mq sg_k1)) = true /\
  apart nothing Batch (unit_term [(Sample Self K1 true, 1%Z)]) [(konst 2, [Mean Single Mq sg_k1])] = false.
Proof. now vm_compute. Qed.
Example square_of_a_sum : (* E[(sum k1)^2] = (n-1) E[k1^2] + (n-1) (n-2) E[k1]^2 *)
  apart sized Batch (of_others 2) [(n_less 1, [paid_; Mean Single Mq (mul k1 k1)]); (mul (n_less 1) (n_less 2), [paid_; mean_k1; mean_k1])] = true /\
  apart sized Batch (of_others 2) [(mul (n_less 1) (n_less 1), [paid_; mean_k1; mean_k1])] = false.
Proof. now vm_compute. Qed.
Example one_sample_is_not_independent_of_itself :
  batch_is sized (only (Mean Batch Mq [both Self Self Score])) [(one, [Mean Single Mq k1; Mean Single Mq (at_ Whole Score)])]
    [(m1, Independence Batch Mq (both Self Self Score))] = false.
Proof. now vm_compute. Qed.
Example any_function_of_others_is_no_sum :
  let t := unit_term [(Sample Others Any false, 1%Z)] in
  batch_is sized (only (Mean Batch Mq [t])) [(n_less 1, [Mean Single Mq (at_ Whole Any)])] [(m1, Independence Batch Mq t)] = false.
Proof. now vm_compute. Qed.
Example counting_is_not_independent : (* the sum over all batches counts those of the others as well *)
  let t := unit_term [(Sample Self K1 false, 1%Z)] in
  batch_is sized (only (Mean Batch Mcount [t])) (only (Mean Single Mcount k1)) [(m1, Independence Batch Mcount t)] = false.
Proof. now vm_compute. Qed.
Example exp_of_a_sum :
  let t := (1%Q, [], [(1%Q, [(Sample Others K1 false, 1%Z)])]) in
  batch_is sized (only (Mean Batch Mq [t])) [(n_less 1, [Mean Single Mq (exp_ [(1%Q, [(Sample Whole K1 false, 1%Z)])])])]
    [(m1, Independence Batch Mq t)] = false.
Proof. now vm_compute. Qed.
Example exp_over_two_slots :
  let t := (1%Q, [], [(1%Q, [(Sample Self K1 false, 1%Z); (Sample Other K1 false, 1%Z)])]) in
  batch_is sized (only (Mean Pair Mq [t])) [] [(m1, Independence Pair Mq t)] = false.
Proof. now vm_compute. Qed.
Example score_of_another_sample : (* E[k1_others s_self] = 0, and k1_self s_self is not *)
  batch_is sized (only (Mean Batch Mq (mul (at_ Others K1) (at_ Self Score)))) [] [(m1, ScoreMeanZero Batch Self (at_ Others K1))] = true /\
  batch_is sized (only (Mean Batch Mq (mul (at_ Self K1) (at_ Self Score)))) [] [(m1, ScoreMeanZero Batch Self (at_ Self K1))] = false /\
  batch_is sized (only (Mean Batch Mq (mul (at_ Others K1) (at_ Others Score)))) [] [(m1, ScoreMeanZero Batch Others (at_ Others K1))] = false /\
  batch_is sized (only (Mean Batch Mq (at_ Other Score))) [] [(m1, ScoreMeanZero Batch Other one)] = false.
Proof. now vm_compute. Qed.
Definition rho_at (z : slot) : ep := exp_ [(1%Q, [(Sample z W false, 1%Z)])].
Example ratio_of_another_sample :
  batch_is sized (only (Mean Batch Mmu (mul (at_ Self K1) (rho_at Others)))) (only (Mean Batch Mmu (at_ Self K1)))
    [(m1, RatioMeanOne Batch Others Mmu Mq (at_ Self K1))] = true /\
  batch_is sized (only (Mean Batch Mmu (mul (at_ Self K1) (rho_at Self)))) (only (Mean Batch Mmu (at_ Self K1)))
    [(m1, RatioMeanOne Batch Self Mmu Mq (at_ Self K1))] = false.
Proof. now vm_compute. Qed.
Example ratio_of_one_slot_is_no_change_of_measure :
  batch_is sized (only (Mean Batch Mq (at_ Self K1))) (only (Mean Batch Mmu (mul (at_ Self K1) (rho_at Self))))
    [(m1, ChangeOfMeasure Batch Mq Mmu (at_ Self K1))] = false.
Proof. now vm_compute. Qed.
Example gradient_of_a_function_of_others :
  let f := var_ (Sample Others (Fn 0 0) false) in
  batch_is sized (only (MeanGradient Batch Mq f)) [] [(m1, ChainRule Batch Mq f)] = false.
Proof. now vm_compute. Qed.
Example scores_of_all_samples : (* grad E_q[k1_self] holds the score functions of all samples *)
  let x := only (Gradient [(one, Some (Batch, Mq, at_ Self K1))]) in
  let l := [(m1, LogDerivative [(one, Some (Batch, Mq, at_ Self K1))]); (m1, ChainRule Batch Mq (at_ Self K1));
    (m1, ScoreMeanZero Batch Self one)] in
  batch_is sized x (only (Mean Batch Mq (mul (at_ Self K1) (at_ Self Score)))) l = false /\
  batch_is sized x (only (Mean Batch Mq (mul (at_ Self K1) (at_ Self Score))))
    (l ++ [(m1, ScoreMeanZero Batch Others (at_ Self K1))]) = true.
Proof. now vm_compute. Qed.

(* ---------- names ---------- *)
(* rho is clipped above 1.2: B = 1 where rho > 1.2 *)
Definition bound_12 : ep := sub (rho) (konst (6 # 5)).
Definition region : definition := Define [Whole] Region bound_12.
Definition B_ : ep := var_ (Named [Whole] 0 Still false).
Definition clipped : ep := add (mul B_ (konst (6 # 5))) (mul (sub one B_) rho).
Definition given (l : list definition) (f : list fact) : assumptions := Assume (Premises [] [] None l f) [] [].
Definition calm : list fact := [Settled Mmu Single (Named [Whole] 0 Still false)].
Definition in_region (a : assumptions) (x y : side) (l : list (side * rule)) : bool := check (Script a [Part x y Equal [] l] Proved).
Definition of_clipped (m : measure) (f : list fact) : bool :=
  in_region (given [region] f) (only (Gradient [(one, Some (Single, m, clipped))]))
    (only (Mean Single m (mul (sub one B_) (mul rho (var_ (score Whole))))))
    [(m1, LogDerivative [(one, Some (Single, m, clipped))]); (m1, ChainRule Single m clipped)].
Example gradient_of_a_clip : of_clipped Mmu calm = true. Proof. now vm_compute. Qed.
Example gradient_where_samples_cross : (* nothing is said of the bound, or of it under another measure, at another index or of another name *)
  of_clipped Mmu [] = false /\ of_clipped Mmu [Settled Mp Single (Named [Whole] 0 Still false)] = false /\
  of_clipped Mmu [Settled Mmu Steps (Named [Whole] 0 Still false)] = false /\
  of_clipped Mmu [Settled Mmu Single (Named [Whole] 1 Still false)] = false /\ of_clipped Mmu [Apart Mmu Single bound_12] = false.
Proof. now vm_compute. Qed.
Example what_autograd_averages_needs_nothing : (* regions stand still in it *)
  in_region (given [region] []) (only (MeanGradient Single Mmu clipped)) (only (Mean Single Mmu (mul (sub one B_) (mul rho (var_ (score Whole))))))
    [(m1, ChainRule Single Mmu clipped)] = true.
Proof. now vm_compute. Qed.
Definition paid_region : definition := Define [Whole] Region reward.
Definition paid_clip (d : definition) (b : ep) : bool :=
  in_region (given [d] []) (only (Gradient [(one, Some (Single, Mmu, mul b rho))])) (only (Mean Single Mmu (mul b (mul rho (var_ (score Whole))))))
    [(m1, LogDerivative [(one, Some (Single, Mmu, mul b rho))]); (m1, ChainRule Single Mmu (mul b rho))].
Example regions_that_do_not_move : (* of rewards, and of log p - log mu, which is w - k1 *)
  let gap := sub (var_ (Sample Whole W false)) k1 in
  paid_clip paid_region B_ = true /\ paid_clip (Define [Whole] Region gap) B_ = true /\
  paid_clip (Define [Whole] Region (add gap k1)) B_ = false /\ paid_clip region B_ = false.
Proof. now vm_compute. Qed.
Example squares_of_regions : (* B^2 = B, of a region alone *)
  let square a := in_region (given [region; Define [Whole] Let reward] []) (only (Mean Single Mmu (mul a a))) (only (Mean Single Mmu a)) [(m1, Indicators Single Mmu (mul a a))] in
  square B_ = true /\ square k1 = false /\ square (var_ (Named [Whole] 1 Still false)) = false /\ square (var_ (Named [Whole] 2 Still false)) = false.
Proof. now vm_compute. Qed.
(* where rho > 1.2 and -rho >= 0, no sample is; so where rho > 1.2 and rho <= 1 *)
Definition region_1 : definition := Define [Whole] Region (sub rho one).
Definition empty (f : list fact) (c d : bool) (heavy : Q) : bool :=
  let x := Choose [Whole] 0 c in let y := Choose [Whole] 1 d in
  let row w b := CellRow (w, [], []) [b] one [] in
  in_region (given [region; region_1] f) (only (Mean Single Mmu (mul (if c then B_ else sub one B_)
      (let b := var_ (Named [Whole] 1 Still false) in if d then b else sub one b)))) []
    [(m1, InCell Single Mmu one one [x; y] [row 1%Q (Of x); row heavy (Of y); CellRow ((1 # 5)%Q, [], []) [] one []])].
Example an_empty_cell : empty [] true false 1 = true. Proof. now vm_compute. Qed.
Example cells_that_are_not_empty :
  empty [] true true 1 = false /\ empty [] false false 1 = false /\ empty [] false true 1 = false /\ empty [] true false (-1) = false /\
  empty [] true false 2 = false.
Proof. now vm_compute. Qed.
(* logs: l = ln(1 + k1^2) *)
Definition positive_ : ep := add one (mul k1 k1).
Definition named_log : definition := Define [Whole] Log positive_.
Definition l_ : ep := var_ (Named [Whole] 0 Moving false).
Definition slope_of (d : definition) (r : ep) : bool :=
  in_region (given [d] []) (only (MeanGradient Single Mmu l_)) (only (Mean Single Mmu r)) [(m1, ChainRule Single Mmu l_); (m1, NameSlope Single Mmu [Whole] 0 one)].
Definition inverse : ep := exp_ [((-1)%Q, [(Named [Whole] 0 Moving false, 1%Z)])].
Definition twice_k1_s : ep := mul (konst 2) (mul k1 (var_ (score Whole))).
Example the_slope_of_a_log : slope_of named_log (mul inverse twice_k1_s) = true /\ slope_of (Define [Whole] Let positive_) twice_k1_s = true.
Proof. now vm_compute. Qed.
Example false_slopes : (* without 1/e; of a log of what may be 0 or less; of a region *)
  slope_of named_log twice_k1_s = false /\ slope_of (Define [Whole] Log k1) (mul inverse (var_ (score Whole))) = false /\
  slope_of (Define [Whole] Log (mul k1 k1)) (mul inverse twice_k1_s) = false /\ slope_of (Define [Whole] Region positive_) [] = false.
Proof. now vm_compute. Qed.
Definition log_k1 (f : list fact) : bool :=
  in_region (given [Define [Whole] Log k1] f) (only (MeanGradient Single Mmu l_)) (only (Mean Single Mmu (mul inverse (var_ (score Whole)))))
    [(m1, ChainRule Single Mmu l_); (m1, NameSlope Single Mmu [Whole] 0 one)].
Example a_log_of_what_is_positive : (* at each sample that is averaged over, not of another measure, and not 0 or more *)
  log_k1 [Positive Mmu Single k1] = true /\ log_k1 [Positive Mq Single k1] = false /\ log_k1 [Positive Mmu Steps k1] = false /\
  log_k1 [AtLeastZero Mmu Single k1] = false /\ log_k1 [Apart Mmu Single k1] = false.
Proof. now vm_compute. Qed.
Definition stands (d : definition) (x : ep) : bool := in_region (given [d] []) (only (Mean Single Mmu x)) [] [(m1, ByDefinition Single Mmu [Whole] 0 Moving one)].
Example what_names_stand_for : stands named_log (sub (mul positive_ inverse) one) = true /\ stands (Define [Whole] Let k1) (sub l_ k1) = true /\
  stands (Define [Whole] Log k1) (sub (mul k1 inverse) one) = false /\ stands (Define [Whole] Region k1) (sub l_ k1) = false /\ stands named_log (sub l_ positive_) = false.
Proof. now vm_compute. Qed.
(* definitions in a circle, of another slot than they say, and of a slope, of which all could be proved *)
Definition trivial (l : list definition) : bool := in_region (given l []) c1 c1 [].
Example definitions_of_nothing :
  trivial [named_log; Define [Whole] Let l_] = true /\ trivial [Define [Whole] Let (add l_ one)] = false /\
  trivial [Define [Whole] Let (var_ (Named [Whole] 1 Moving false)); Define [Whole] Let (add l_ one)] = false /\
  trivial [Define [Now] Let k1] = false /\ trivial [named_log; Define [Now] Let l_] = false /\
  trivial [named_log; Define [Whole] Let (var_ (Named [Whole] 0 Slope false))] = false.
Proof. now vm_compute. Qed.
(* a name of a sample of a batch is that of a sample; one of a token is not *)
Definition alike (z : slot) (i : index) : bool :=
  in_region (given [region] []) (only (Mean i Mmu (var_ (Named [z] 0 Still false)))) (only (Mean Single Mmu B_))
    [(m1, Independence i Mmu (1%Q, [(Named [z] 0 Still false, 1%Z)], []))].
Example names_of_samples_of_a_batch : alike Self Batch = true /\ alike Others Batch = false /\ alike Now Steps = false.
Proof. now vm_compute. Qed.

(* ---------- names in models ---------- *)
(* the first of two outcomes pays 1 and the other -1; a region is 1 where its element is surely positive *)
Definition unlike : model := Model [([], Node half skew half skew [1%Q; 0%Q] [0%Q; 1%Q] [[1%Q; -1%Q]])] [0] [1%Q].
Definition in_model (l : list definition) (f : list fact) (a b : side) (m : model) : bool := check (Script (given l f) [Part a b Equal [] []] (Refuted m)).
Definition rewarded : definition := Define [Whole] Region reward.
Example a_region_in_a_model :   (* E_mu[B] is 1/2 there, not 1 *)
  in_model [rewarded] [] (only (Mean Single Mmu B_)) c1 unlike = true /\ in_model [rewarded] [] (only (Mean Single Mmu B_)) (number (1 # 2)) unlike = false.
Proof. now vm_compute. Qed.
Example a_log_in_a_model :   (* l = ln r, of mean sum q ln(p/q) *)
  let d := Define [Whole] Log (exp_ [((-1)%Q, [(Sample Whole K1 false, 1%Z)])]) in
  in_model [d] [] (only (Mean Single Mq l_)) [] unlike = true /\ in_model [d] [] (only (Mean Single Mq (add l_ k1))) [] unlike = false.
Proof. now vm_compute. Qed.
Example facts_in_a_model :   (* of parameters: that one is 1 there; of samples none is looked at *)
  let fact e := in_model [rewarded] [AtLeastZero Mmu Single e] (only (Mean Single Mmu B_)) c1 unlike in
  fact (sub (var_ (Par 0 false)) (konst (1 # 2))) = true /\ fact (sub (var_ (Par 0 false)) (konst 2)) = false /\ fact reward = false /\
  in_model [rewarded] calm (only (Mean Single Mmu B_)) c1 unlike = false.
Proof. now vm_compute. Qed.
Example a_further_policy_in_a_model :   (* log q - log old, where old is p *)
  let o := var_ (Sample Whole ToOld false) in
  in_model [] [] (only (Mean Single Mq o)) [] unlike = true /\ in_model [] [] (only (Mean Single Mq (sub o k1))) [] unlike = false.
Proof. now vm_compute. Qed.

(* ---------- two directions ---------- *)
(* E_q[R s.u] E_mu[R s.v] - E_q[R s.v] E_mu[R s.u] *)
Definition along_u : ep := mul reward (var_ (score Whole)).
Definition along_v : ep := mul reward (var_ (Sample Whole (Fn 0 0) false)).
Definition three_words (u v : list Q) : model :=
  Model [([], Node [(1 # 2)%Q; (1 # 4)%Q; (1 # 4)%Q] [(1 # 4)%Q; (1 # 4)%Q; (1 # 2)%Q] [(1 # 3)%Q; (1 # 3)%Q; (1 # 3)%Q] [(1 # 3)%Q; (1 # 3)%Q; (1 # 3)%Q]
    u v [[1%Q; 2%Q; -1%Q]])] [0] [].
Definition crossed (m : model) (e : ending) (more : side) : bool :=
  check (Script nothing [Part ([(one, [Mean Single Mq along_u; Mean Single Mmu along_v]); (opp one, [Mean Single Mq along_v; Mean Single Mmu along_u])] ++ more) [] Equal [] []] e).
Example two_directions :
  let m := three_words [1%Q; 0%Q; 0%Q] [0%Q; 1%Q; 0%Q] in crossed m (Crossed m) [] = true /\ crossed m Proved [] = false.
Proof. now vm_compute. Qed.
Example one_direction_twice : (* or none, or one and the other's multiple *)
  let at_ u v := let m := three_words u v in crossed m (Crossed m) [] in
  at_ [1%Q; 0%Q; 0%Q] [1%Q; 0%Q; 0%Q] = false /\ at_ [1%Q; 0%Q; 0%Q] [0%Q; 0%Q; 0%Q] = false /\ at_ [1%Q; 0%Q; 0%Q] [3%Q; 1%Q; 1%Q] = false.
Proof. now vm_compute. Qed.
