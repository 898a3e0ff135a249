(* False steps and false closings: each of these must evaluate to false. *)
From Coq Require Import List ZArith QArith Bool.
From Klsym Require Import Setting Ring Statements Rules Checker Completeness Models.
Import ListNotations.
Local Open Scope nat_scope.

Definition k1 : ep := var_ (Sample K1 false).
Definition sg_k1 : ep := var_ (Sample K1 true).
Definition rho : ep := exp_ [(1%Q, [(Sample W false, 1%Z)])].
Definition sg_rho : ep := exp_ [(1%Q, [(Sample W true, 1%Z)])].
Definition k3 : ep := add (exp_ [((-1)%Q, [(Sample K1 false, 1%Z)])]) (sub k1 one).
Definition reward : ep := var_ (Sample (Given 0) false).
Definition nothing : assumptions := Assume (Premises [] []) [] [].
Definition is (a b : side) (l : list (side * rule)) : bool := check (Script nothing [Part a b Equal [] l] Proved).
Definition below (a : assumptions) (x y : side) (r : list row) : bool := check (Script a [Part x y AtMost r []] Proved).
Definition c1 : side := [(one, [])].
Definition m1 : side := [(opp one, [])].
Definition reverse : side := [(one, [Gradient [(one, Some (Mq, k1))]])].

(* what is right, so that these tests can fail *)
Example accepted_k1 : is (only (MeanGradient Mq k1)) [] [(m1, ChainRule Mq k1); (m1, ScoreMeanZero one)] = true.
Proof. now vm_compute. Qed.
Example accepted_norm : is (only (Mean Mq one 0)) c1 [(m1, Normalisation Mq one)] = true.
Proof. now vm_compute. Qed.
Example accepted_row : below nothing [] (only (Mean Mq (mul k1 k1) 0)) [Row (Square None) (1%Q, [], []) one Mq [] k1 0] = true.
Proof. now vm_compute. Qed.

(* ---------- rules ---------- *)
Example score_of_a_random_coefficient : is (only (Mean Mq k1 1)) [] [(m1, ScoreMeanZero k1)] = false.
Proof. now vm_compute. Qed.
Example score_of_a_reward : is (only (Mean Mq reward 1)) [] [(m1, ScoreMeanZero reward)] = false.
Proof. now vm_compute. Qed.
Example score_under_another_measure : is (only (Mean Mp one 1)) [] [(m1, ScoreMeanZero one)] = false.
Proof. now vm_compute. Qed.
Example two_scores : is (only (Mean Mq one 2)) [] [(m1, ScoreMeanZero one)] = false.
Proof. now vm_compute. Qed.
Example normalisation_of_counting : is (only (Mean Mcount one 0)) c1 [(m1, Normalisation Mcount one)] = false.
Proof. now vm_compute. Qed.
Example normalisation_of_a_log_ratio : is (only (Mean Mq k1 0)) [] [(m1, Normalisation Mq k1)] = false.
Proof. now vm_compute. Qed.
Example ratio_times_a_random_factor :
  is (only (Mean Mmu (mul reward rho) 0)) (only (Mean Mmu reward 0)) [(m1, RatioMeanOne Mmu Mq reward)] = false.
Proof. now vm_compute. Qed.
Example ratio_under_the_wrong_measure :
  is (only (Mean Mq rho 0)) (only (Mean Mq one 0)) [(m1, RatioMeanOne Mq Mmu one)] = false.
Proof. now vm_compute. Qed.
Example change_of_a_value : is (only (Mean Msample k1 0)) (only (Mean Mq k1 0)) [(m1, ChangeOfMeasure Msample Mq k1 0)] = false.
Proof. now vm_compute. Qed.
Example change_without_the_ratio : is (only (Mean Mmu k1 0)) (only (Mean Mq k1 0)) [(m1, ChangeOfMeasure Mmu Mq k1 0)] = false.
Proof. now vm_compute. Qed.
Example log_derivative_without_the_score :
  is reverse (only (MeanGradient Mq k1)) [(m1, LogDerivative [(one, Some (Mq, k1))])] = false.
Proof. now vm_compute. Qed.
Example a_detached_quantity_has_no_gradient :
  is (only (MeanGradient Mq (mul sg_k1 k1))) (only (Mean Mq (mul (konst 2) k1) 1)) [(m1, ChainRule Mq (mul sg_k1 k1))] = false.
Proof. now vm_compute. Qed.
Example stop_gradient_under_a_gradient :
  is (only (MeanGradient Mq sg_k1)) (only (MeanGradient Mq k1)) [(m1, StopGradient Mq sg_k1 0)] = false.
Proof. now vm_compute. Qed.
Example the_detach_trap : (* E_mu[grad sg(rho) k3] is not grad KL(q||p) *)
  let L := mul sg_rho k3 in
  is (only (MeanGradient Mmu L)) reverse
    [(m1, ChainRule Mmu L); (m1, ChangeOfMeasure Mmu Mq (attach (derivative L)) 1); (c1, LogDerivative [(one, Some (Mq, k1))]);
     (c1, ChainRule Mq k1); (c1, ScoreMeanZero one)] = false.
Proof. now vm_compute. Qed.
Example no_premise : is (only (Mean Mq k1 0)) [] [(m1, Premise 0)] = false.
Proof. now vm_compute. Qed.
Example no_premise_for_every_theta : is reverse [] [(m1, PremiseGradient 0)] = false.
Proof. now vm_compute. Qed.
Example nothing_is_cited : is (only (Mean Mq k1 0)) [] [(m1, Cited 0)] = false.
Proof. now vm_compute. Qed.
Example a_part_cites_itself :
  let p := Part (only (Mean Mq k1 0)) [] Equal [] [(m1, Cited 0)] in check (Script nothing [p; p] Proved) = false.
Proof. now vm_compute. Qed.
Example an_inequality_is_no_equation :
  let p := Part [] (only (Mean Mq (mul k1 k1) 0)) AtMost [Row (Square None) (1%Q, [], []) one Mq [] k1 0] [] in
  let q := Part [] (only (Mean Mq (mul k1 k1) 0)) Equal [] [(c1, Cited 0)] in
  check (Script nothing [p] Proved) = true /\ check (Script nothing [p; q] Proved) = false.
Proof. now vm_compute. Qed.
(* a parameter that may be 0 does not cancel *)
Definition over (nz : bool) : ep := [(1%Q, [(Par 0 nz, (-1)%Z); (Par 0 nz, 1%Z)], [])].
Example what_is_not_zero_cancels : is [(over true, [])] c1 [] = true. Proof. now vm_compute. Qed.
Example zero_over_zero : is [(over false, [])] c1 [] = false. Proof. now vm_compute. Qed.

(* ---------- rows ---------- *)
Definition par : ep := var_ (Par 0 true).
Definition square : ep := mul k1 k1.
Definition row_with (t : term) : row := Row (Square None) t one Mq [] k1 0.
Example negative_scale : below nothing [] (only (Mean Mq (opp square) 0)) [row_with ((-1)%Q, [], [])] = false.
Proof. now vm_compute. Qed.
Example zero_scale : below nothing [] [] [row_with (0%Q, [], [])] = false.
Proof. now vm_compute. Qed.
Example parameter_of_unknown_sign :
  below nothing [] (only (Mean Mq (mul par square) 0)) [row_with (1%Q, [(Par 0 true, 1%Z)], [])] = false.
Proof. now vm_compute. Qed.
Example positive_parameter :
  below (Assume (Premises [] []) [0] []) [] (only (Mean Mq (mul par square) 0)) [row_with (1%Q, [(Par 0 true, 1%Z)], [])] = true.
Proof. now vm_compute. Qed.
Example random_factor : below nothing [] (only (Mean Mq (mul square square) 0)) [Row (Square None) (1%Q, [], []) k1 Mq [] k1 0] = false.
Proof. now vm_compute. Qed.
Example random_scale : below nothing [] (only (Mean Mq (mul k1 square) 0)) [row_with (1%Q, [(Sample K1 false, 1%Z)], [])] = false.
Proof. now vm_compute. Qed.
Example tangent_with_the_wrong_sign :
  below nothing (only (Mean Mq k3 0)) [] [Row Tangent (1%Q, [], []) one Mq [] (opp k1) 0] = false.
Proof. now vm_compute. Qed.
Example variance_of_counting :
  below nothing [(one, [Mean Mcount k1 0; Mean Mcount k1 0])] (only (Mean Mcount square 0))
    [Row Variance (1%Q, [], []) one Mcount [] k1 0] = false.
Proof. now vm_compute. Qed.
Example variance_of_probability :
  below nothing [(one, [Mean Mq k1 0; Mean Mq k1 0])] (only (Mean Mq square 0)) [Row Variance (1%Q, [], []) one Mq [] k1 0] = true.
Proof. now vm_compute. Qed.
Example region_of_another_measure :
  below (Assume (Premises [] []) [] [(Mp, k1)]) [] (only (Mean Mq (mul k1 square) 0))
    [Row (Square (Some 0)) (1%Q, [], []) one Mq [] k1 0] = false.
Proof. now vm_compute. Qed.
Example rows_in_an_equation :
  check (Script nothing [Part [] (only (Mean Mq square 0)) Equal [row_with (1%Q, [], [])] []] Proved) = false.
Proof. now vm_compute. Qed.

(* ---------- models ---------- *)
Definition model_of (a b c : list Q) : model := Model a b c [1%Q; 0%Q] [] 0 [].
Definition refuted (l : side) (r : side) (m : model) : bool := check (Script nothing [Part l r Equal [] []] (Refuted m)).
Definition half := [(1 # 2)%Q; (1 # 2)%Q].
Definition skew := [(1 # 4)%Q; (3 # 4)%Q].
Example a_model : refuted (only (Mean Mq k1 0)) [] (model_of half skew half) = true. Proof. now vm_compute. Qed.
(* exp of a parameter, of a reward, and of a share of a log ratio: exp 1 is between 2.71828 and 2.71829 *)
Definition paying : model := Model half skew half [1%Q; 0%Q] [[1%Q; 1%Q]] 0 [1%Q].
Definition e_to_parameter : side := [(exp_ [(1%Q, [(Par 0 false, 1%Z)])], [])].
Definition e_to_reward : side := only (Mean Mq (exp_ [(1%Q, [(Sample (Given 0) false, 1%Z)])]) 0).
Definition number (c : Q) : side := [(konst c, [])].
Example exp_of_a_parameter : refuted e_to_parameter (number (271828 # 100000)) paying = true. Proof. now vm_compute. Qed.
Example exp_of_a_reward : refuted e_to_reward (number (271829 # 100000)) paying = true. Proof. now vm_compute. Qed.
Example a_true_equation_of_exps : refuted e_to_reward e_to_parameter paying = false. Proof. now vm_compute. Qed.
Example exp_is_not_below :
  check (Script nothing [Part (number (271828 # 100000)) e_to_parameter AtMost [] []] (Refuted paying)) = false /\
  check (Script nothing [Part (number (271829 # 100000)) e_to_parameter AtMost [] []] (Refuted paying)) = true.
Proof. now vm_compute. Qed.
Definition root : ep := exp_ [((1 # 2)%Q, [(Sample K1 false, 1%Z)])].
Example a_square_root : refuted (only (Mean Mp root 0)) c1 (model_of half skew half) = true. Proof. now vm_compute. Qed.
Example a_root_of_one : refuted (only (Mean Mp root 0)) c1 (model_of half half half) = false. Proof. now vm_compute. Qed.
Example q_is_p : refuted (only (Mean Mq k1 0)) [] (model_of half half half) = false. Proof. now vm_compute. Qed.
Example not_one : refuted (only (Mean Mq k1 0)) [] (model_of half [(1 # 4)%Q; (1 # 4)%Q] half) = false.
Proof. now vm_compute. Qed.
Example negative : refuted (only (Mean Mq k1 0)) [] (model_of half [(-1 # 4)%Q; (5 # 4)%Q] half) = false.
Proof. now vm_compute. Qed.
Example no_support : refuted (only (Mean Mq k1 0)) [] (model_of half [0%Q; 1%Q] half) = false. Proof. now vm_compute. Qed.
Example lengths_differ : refuted (only (Mean Mq k1 0)) [] (model_of half [1%Q] half) = false. Proof. now vm_compute. Qed.
Example a_true_equation : refuted (only (Mean Mq one 0)) c1 (model_of half skew half) = false. Proof. now vm_compute. Qed.
Example a_gradient_is_not_enclosed : refuted reverse [] (model_of half skew half) = false. Proof. now vm_compute. Qed.
Example premises_are_not_modelled :
  check (Script (Assume (Premises [(only (Mean Mq k1 0), [])] []) [] []) [Part (only (Mean Mq k1 0)) [] Equal [] []]
    (Refuted (model_of half skew half))) = false.
Proof. now vm_compute. Qed.

(* ---------- the only functions ---------- *)
Definition g0 : ep := var_ (Sample (Fn 0 0) false).
Definition g1 : ep := var_ (Sample (Fn 0 1) false).
Definition only_if (a : assumptions) (m : measure) (c : ep) (f : family) : bool :=
  check (Script a [Part (only (Mean m c 1)) [] Equal [] []] (Unique f)).
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
  let w := var_ (Sample W false) in only_if nothing Mq (sub g0 w) (Family (sub g0 w) false one 1 w [0]) = false.
Proof. now vm_compute. Qed.
Example a_constant_in_the_equation :
  let c := sub g0 (var_ (Par 0 false)) in only_if nothing Mq c (Family c false one 1 (var_ (Par 0 false)) [0]) = false.
Proof. now vm_compute. Qed.
Example a_unit_that_is_zero : only_if nothing Mq score_form (Family score_form false [] 1 k1 [0]) = false. Proof. now vm_compute. Qed.
Example what_does_not_solve_it : (* g - k1 + w is constant for no function of k1 *)
  let c := add score_form (var_ (Sample W false)) in only_if nothing Mq c (Family c false one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example a_function_in_an_exponent :
  let c := exp_ [(1%Q, [(Sample (Fn 0 0) false, 1%Z)])] in only_if nothing Mq c (Family c false c 1 [] [0]) = false.
Proof. now vm_compute. Qed.
Example where_premises_narrow_the_settings :
  only_if (Assume (Premises [(only (Mean Mq k1 0), [])] []) [] []) Mq score_form (Family score_form false one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example along_w : (* E_q[(w + g - k1 - (w - k1)) s], by no derivative along w *)
  only_if nothing Mq score_form (Family score_form true one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
Example a_condition_along_w : (* E_q[(g - k1) w s] = 0 iff g = k1 *)
  let c := mul (sub g0 k1) (var_ (Sample W false)) in
  only_if nothing Mq c (Family c true one 0 k1 []) = true /\ only_if nothing Mq c (Family c true one 1 k1 [0]) = false.
Proof. now vm_compute. Qed.
