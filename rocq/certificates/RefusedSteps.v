(* False steps along sequences: each of these must evaluate to false, beside right ones, so that these tests can fail. *)
From Coq Require Import List ZArith QArith Bool.
From Klsym Require Import Setting Ring Statements Rules Checker Completeness Combinations Models Fields Scripts Refused.
Import ListNotations.
Local Open Scope nat_scope.

Definition v (z : slot) (b : base) : ep := at_ z b.
Definition E_q (a : ep) : side := only (Mean Steps Mq a).
Definition E_mu (a : ep) : side := only (Mean Steps Mmu a).
Definition T_inverse : ep := [(1%Q, [(Sample Whole Length false, (-1)%Z)], [])].
Definition zero (a : ep) (r : rule) : bool := is (E_q a) [] [(m1, r)].
Definition causal (z : slot) (c : ep) : bool := zero (mul c (v z Score)) (ScoreMeanZero Steps z c).

(* ---------- causality ---------- *)
Example the_past_is_fixed : (* E_q[sum_t A_past s_t] = 0, and so for k1_past, and with what follows beside past and now *)
  causal Now (v Past Any) = true /\ causal Now (v Past K1) = true /\ causal Future (mul (v Past K1) (v Now Any)) = true.
Proof. now vm_compute. Qed.
Example the_step_itself_is_not : causal Now (v Now K1) = false /\ causal Now (v Now Any) = false. Proof. now vm_compute. Qed.
Example nor_what_follows : causal Now (v Future K1) = false /\ causal Future (v Future (Given 0)) = false. Proof. now vm_compute. Qed.
Example nor_the_whole : causal Now (v Whole K1) = false /\ causal Now (v Whole Any) = false /\ causal Now T_inverse = false.
Proof. now vm_compute. Qed.
Example another_sequence_is_not_beside_it : causal Now (v Others K1) = false. Proof. now vm_compute. Qed.
Example score_of_the_past : (* sum_t s_past counts each step as often as others follow *)
  causal Past one = false /\ causal Whole one = false.
Proof. now vm_compute. Qed.
Example two_scores_of_a_step : causal Now (v Now Score) = false. Proof. now vm_compute. Qed.
Example score_after_the_past : causal Now (v Past Score) = true. Proof. now vm_compute. Qed.

(* ---------- ratios ---------- *)
Definition ratio_one (z : slot) (c : ep) : bool := is (E_mu (mul c (rho_at z))) (E_mu c) [(m1, RatioMeanOne Steps z Mmu Mq c)].
Example ratio_of_a_step : ratio_one Now (v Past K1) = true /\ ratio_one Future (v Now K1) = true. Proof. now vm_compute. Qed.
Example ratio_of_the_past : ratio_one Past one = false. Proof. now vm_compute. Qed.
Example ratio_of_the_whole : ratio_one Whole one = false. Proof. now vm_compute. Qed.
Example ratio_beside_what_follows : ratio_one Now (v Future K1) = false /\ ratio_one Now (v Whole K1) = false /\ ratio_one Now T_inverse = false.
Proof. now vm_compute. Qed.
Definition moved_by (zs : list slot) : bool :=
  is (E_q (v Now K1)) (E_mu (fold_right (fun z a => mul (rho_at z) a) (v Now K1) zs)) [(m1, ChangeOfMeasure Steps Mq Mmu (v Now K1))].
Example all_of_the_sequence_moves : moved_by [Past; Now; Future] = true. Proof. now vm_compute. Qed.
Example a_token_ratio_is_no_change_of_measure : moved_by [Now] = false /\ moved_by [Past; Now] = false /\ moved_by [Past] = false.
Proof. now vm_compute. Qed.

(* ---------- sums ---------- *)
Definition summed_up (b : base) (a whole steps : ep) : bool := is (only (Mean Single Mq whole)) (E_q steps) [(m1, SumOverSteps Mq b a)].
Example over_the_steps : summed_up K1 one (v Whole K1) (v Now K1) = true /\ summed_up Length (v Whole K1) (mul (v Whole K1) (v Whole Length)) (v Whole K1) = true.
Proof. now vm_compute. Qed.
Example a_square_is_no_sum_of_squares : summed_up K1 (v Whole K1) (mul (v Whole K1) (v Whole K1)) (mul (v Now K1) (v Now K1)) = false.
Proof. now vm_compute. Qed.
Example what_is_no_sum : summed_up Any one (v Whole Any) (v Now Any) = false /\ summed_up (Fn 0 0) one (v Whole (Fn 0 0)) (v Now (Fn 0 0)) = false.
Proof. now vm_compute. Qed.
Example a_factor_that_is_not_of_the_whole : (* k1_now k1 for one sequence is not sum_t k1_t^2, nor is k1_others of any use *)
  summed_up K1 (v Now K1) (mul (v Now K1) (v Whole K1)) (mul (v Now K1) (v Now K1)) = false /\
  summed_up K1 (v Others K1) (mul (v Others K1) (v Whole K1)) (mul (v Others K1) (v Now K1)) = false.
Proof. now vm_compute. Qed.
Example once_for_each_step : summed_up K1 one (v Whole K1) (v Whole K1) = false. Proof. now vm_compute. Qed.
Example normalisation_of_a_sum : is (E_q one) c1 [(m1, Normalisation Steps Mq one)] = false. Proof. now vm_compute. Qed.
Definition parted (a b : ep) : bool := is (E_q a) (E_q b) [(m1, PartsOfASum Steps Mq a)].
Definition three_of (b : base) : ep := add (v Past b) (add (v Now b) (v Future b)).
Example in_three_parts : parted (v Whole K1) (three_of K1) = true /\ parted (v Whole Length) (add (v Past Length) (add one (v Future Length))) = true
  /\ parted (exp_ [(1%Q, [(Sample Whole W false, 1%Z)])]) (mul (rho_at Past) (mul (rho_at Now) (rho_at Future))) = true.
Proof. now vm_compute. Qed.
Example not_in_two : parted (v Whole K1) (add (v Past K1) (v Now K1)) = false /\ parted (v Whole K1) (add (v Past K1) (v Future K1)) = false.
Proof. now vm_compute. Qed.
Example one_step : parted (v Now Length) one = true /\ parted (v Past Length) one = false. Proof. now vm_compute. Qed.
Example a_step_has_length_one : parted (v Whole Length) (add (v Past Length) (v Future Length)) = false. Proof. now vm_compute. Qed.
Example exp_is_no_sum :
  parted (exp_ [(1%Q, [(Sample Whole W false, 1%Z)])]) (add (rho_at Past) (add (rho_at Now) (rho_at Future))) = false.
Proof. now vm_compute. Qed.
Example any_function_has_no_parts : parted (v Whole Any) (three_of Any) = false /\ parted (v Whole (Fn 0 0)) (three_of (Fn 0 0)) = false.
Proof. now vm_compute. Qed.
Example an_inverse_has_no_parts : parted T_inverse one = false /\ parted T_inverse T_inverse = true. Proof. now vm_compute. Qed.
Example parts_of_one_sample : (* there is no step, and k1_now and the others are 0 *)
  is (only (Mean Single Mq k1)) (only (Mean Single Mq (three_of K1))) [(m1, PartsOfASum Single Mq k1)] = false /\
  batch_is sized (only (Mean Batch Mq k1)) (only (Mean Batch Mq (three_of K1))) [(m1, PartsOfASum Batch Mq k1)] = false.
Proof. now vm_compute. Qed.
Definition swapped (a x y : ep) : bool := is (E_q (mul a x)) (E_q (mul a y)) [(m1, Exchange Steps Mq Score K1 a)].
Definition s_then_k1 : ep := mul (v Now Score) (v Future K1).
Example exchange_of_sums : swapped (v Whole (Given 0)) s_then_k1 (mul (v Past Score) (v Now K1)) = true. Proof. now vm_compute. Qed.
Example exchange_the_other_way : swapped one s_then_k1 (mul (v Future Score) (v Now K1)) = false /\ swapped one s_then_k1 (mul (v Now K1) (v Future Score)) = false.
Proof. now vm_compute. Qed.
Definition exchanged (b c : base) : bool :=
  is (E_q (mul (v Now b) (v Future c))) (E_q (mul (v Past b) (v Now c))) [(m1, Exchange Steps Mq b c one)].
Example exchange_of_what_is_no_sum : exchanged K1 W = true /\ exchanged Any W = false /\ exchanged W Any = false /\ exchanged (Fn 0 0) W = false.
Proof. now vm_compute. Qed.
Example exchange_beside_a_step : swapped (v Now K1) s_then_k1 (mul (v Past Score) (v Now K1)) = false /\
  swapped (v Past (Given 0)) s_then_k1 (mul (v Past Score) (v Now K1)) = false.
Proof. now vm_compute. Qed.

(* ---------- derivatives, rows ---------- *)
Definition k1_now : list gterm := [(one, Some (Steps, Mq, v Now K1))].
Definition grad_of (score : ep) : bool :=
  is (only (Gradient k1_now)) (only (MeanGradient Steps Mq (v Now K1)) ++ E_q (mul (v Now K1) score)) [(m1, LogDerivative k1_now)].
Example the_whole_sequence_is_drawn : grad_of (v Whole Score) = true /\ grad_of (v Now Score) = false. Proof. now vm_compute. Qed.
Example gradient_of_a_function_of_the_past :
  let f := v Past (Fn 0 0) in is (only (MeanGradient Steps Mq f)) [] [(m1, ChainRule Steps Mq f)] = false.
Proof. now vm_compute. Qed.
Example gradient_of_the_whole : (* sum_t grad k1, k1 of the whole sequence, is no sum of its steps *)
  let L := v Whole K1 in is (only (MeanGradient Steps Mq L)) (E_q (v Now Score)) [(m1, ChainRule Steps Mq L)] = false.
Proof. now vm_compute. Qed.
Example variance_of_a_sum :
  below nothing [(one, [Mean Steps Mq (v Now K1); Mean Steps Mq (v Now K1)])] (E_q (mul (v Now K1) (v Now K1)))
    [Row Variance (1%Q, [], []) one Steps Mq [] (v Now K1)] = false.
Proof. now vm_compute. Qed.
Example square_of_a_step : below nothing [] (E_q (mul (v Now K1) (v Now K1))) [Row (Square None) (1%Q, [], []) one Steps Mq [] (v Now K1)] = true.
Proof. now vm_compute. Qed.

(* ---------- batches of sequences ---------- *)
Definition beside_others (t : term) (y : side) : bool := apart sized BatchSteps t y.
Definition now_and_others : term := unit_term [(Sample Others K1 false, 1%Z); (Sample Now Score false, 1%Z)].
Definition mean_score : atom := Mean Steps Mq (v Now Score).
Example others_beside_a_step : beside_others now_and_others [(n_less 1, [mean_k1; mean_score])] = true /\
  beside_others now_and_others [(n_less 0, [mean_k1; mean_score])] = false.
Proof. now vm_compute. Qed.
Example steps_of_one_sequence_are_not_independent :
  beside_others (unit_term [(Sample Past K1 false, 1%Z); (Sample Now K1 false, 1%Z)])
    [(one, [Mean Steps Mq (v Past K1); Mean Steps Mq (v Now K1)])] = false /\
  apart sized Steps (unit_term [(Sample Past K1 false, 1%Z); (Sample Now K1 false, 1%Z)])
    [(one, [Mean Steps Mq (v Past K1); Mean Steps Mq (v Now K1)])] = false.
Proof. now vm_compute. Qed.
Definition causal_in_batch (z : slot) (c : ep) : bool :=
  batch_is sized (only (Mean BatchSteps Mq (mul c (v z Score)))) [] [(m1, ScoreMeanZero BatchSteps z c)].
Example score_in_a_batch : causal_in_batch Now (mul (v Past K1) (v Others K1)) = true /\ causal_in_batch Others (v Whole K1) = true /\
  causal_in_batch Now (v Future K1) = false /\ causal_in_batch Others (v Others K1) = false /\ causal_in_batch Whole (v Others K1) = false.
Proof. now vm_compute. Qed.
Definition E_ (m : measure) (a : ep) : side := only (Mean BatchSteps m a).
Definition in_batch (x y : side) (r : rule) : bool := batch_is sized x y [(m1, r)].
Definition ratio_in_batch (z : slot) (c : ep) : bool :=
  in_batch (E_ Mmu (mul c (rho_at z))) (E_ Mmu c) (RatioMeanOne BatchSteps z Mmu Mq c).
Example ratio_beside_others : ratio_in_batch Now (mul (v Past K1) (v Others K1)) = true /\
  ratio_in_batch Future (mul (v Now K1) (v Others K1)) = true /\ ratio_in_batch Others (v Whole K1) = true.
Proof. now vm_compute. Qed.
Example ratio_of_what_c_speaks_of : ratio_in_batch Now (v Future K1) = false /\ ratio_in_batch Now (v Now K1) = false /\
  ratio_in_batch Future (v Whole K1) = false /\ ratio_in_batch Others (v Others K1) = false /\
  ratio_in_batch Now (v Self K1) = false /\ ratio_in_batch Past one = false /\ ratio_in_batch Whole one = false /\ ratio_in_batch Self one = false.
Proof. now vm_compute. Qed.
Definition moved_in_batch (zs : list slot) : bool :=
  in_batch (E_ Mq (v Now K1)) (E_ Mmu (fold_right (fun z a => mul (rho_at z) a) (v Now K1) zs)) (ChangeOfMeasure BatchSteps Mq Mmu (v Now K1)).
Example all_sequences_move : moved_in_batch [Past; Now; Future; Others] = true. Proof. now vm_compute. Qed.
Example one_sequence_alone_moves : moved_in_batch [Past; Now; Future] = false /\ moved_in_batch [Others] = false /\
  moved_in_batch [Past; Now; Others] = false /\ moved_in_batch [Whole; Past; Now; Future; Others] = false.
Proof. now vm_compute. Qed.
Definition grad_in_batch (m : measure) (zs : list slot) : bool :=
  let k := [(one, Some (BatchSteps, m, v Now K1))] in
  in_batch (only (Gradient k)) (only (MeanGradient BatchSteps m (v Now K1)) ++ flat_map (fun z => E_ m (mul (v Now K1) (v z Score))) zs)
    (LogDerivative k).
Example all_sequences_are_drawn : grad_in_batch Mq [Whole; Others] = true /\ grad_in_batch Mmu [] = true. Proof. now vm_compute. Qed.
Example one_sequence_alone_is_drawn : grad_in_batch Mq [Whole] = false /\ grad_in_batch Mq [Others] = false /\
  grad_in_batch Mq [Now; Others] = false /\ grad_in_batch Mq [] = false /\ grad_in_batch Mmu [Whole; Others] = false.
Proof. now vm_compute. Qed.
Example normalisation_in_a_batch : (* the mean length of a sequence *)
  in_batch (only (Mean Batch Mq one)) c1 (Normalisation Batch Mq one) = true /\ in_batch (E_ Mq one) c1 (Normalisation BatchSteps Mq one) = false /\
  in_batch (only (Mean Batch Mcount one)) c1 (Normalisation Batch Mcount one) = false /\
  in_batch (only (Mean Batch Mq (v Others K1))) [(v Others K1, [])] (Normalisation Batch Mq (v Others K1)) = false.
Proof. now vm_compute. Qed.
Definition parted_in_batch (a b : ep) : bool := in_batch (E_ Mq a) (E_ Mq b) (PartsOfASum BatchSteps Mq a).
Example parts_beside_others : parted_in_batch (mul (v Whole K1) (v Others K1)) (mul (three_of K1) (v Others K1)) = true /\
  parted_in_batch (v Others K1) (three_of K1) = false /\ parted_in_batch (v Whole K1) (add (three_of K1) (v Others K1)) = false.
Proof. now vm_compute. Qed.
Definition swapped_in_batch (a : ep) : bool :=
  in_batch (E_ Mq (mul a s_then_k1)) (E_ Mq (mul a (mul (v Past Score) (v Now K1)))) (Exchange BatchSteps Mq Score K1 a).
Example exchange_beside_others : swapped_in_batch (v Others K1) = true /\ swapped_in_batch (v Future K1) = false. Proof. now vm_compute. Qed.

(* ---------- models ---------- *)
Definition leaf (q : list Q) : node := Node q skew half half [1%Q; 0%Q] [0%Q; 1%Q] [].
Definition tree (l : list (list nat * node)) : model := Model l [0; 1] [].
Definition two_steps : model := tree [([], leaf half); ([0], leaf half)].
Definition longer : side := E_q one.   (* the mean length: 3/2 in two_steps *)
Example a_tree : refuted longer c1 two_steps = true /\ refuted longer (number (3 # 2)) two_steps = false. Proof. now vm_compute. Qed.
Example a_chain_rule_in_a_tree : refuted (only (Mean Single Mq k1)) (E_q (v Now K1)) two_steps = false. Proof. now vm_compute. Qed.
Example the_first_token_is_not_all : refuted (E_q (v Past K1)) [] two_steps = true /\ refuted (E_q (v Past K1)) [] (tree [([], leaf half)]) = false.
Proof. now vm_compute. Qed.
Example causality_in_a_tree : refuted (E_q (mul (v Past K1) (v Now Score))) [] two_steps = false /\ refuted (E_q (mul (v Future K1) (v Now Score))) [] two_steps = true.
Proof. now vm_compute. Qed.
Example no_root : refuted longer (number 2) (tree [([0], leaf half)]) = false. Proof. now vm_compute. Qed.
Example no_path : refuted longer c1 (Model (nodes two_steps) [] []) = false. Proof. now vm_compute. Qed.
Example a_node_that_is_no_distribution : refuted longer c1 (tree [([], leaf half); ([0], leaf [(1 # 2)%Q; (1 # 4)%Q])]) = false.
Proof. now vm_compute. Qed.

(* ---------- curls ---------- *)
Definition half_square_now : ep := scale ((1 # 2)%Q, [], []) (mul (v Now K1) (v Now K1)).
Definition curl (m : measure) (i : index) (L : ep) (t : model) : bool := check (Script nothing [] (Curled m i L t)).
Definition slanted : model := tree [([], leaf half); ([0], Node skew half half half [1%Q; 2%Q] [3%Q; -1%Q] [])].
Example a_token_field_has_a_curl : curl Mq Steps half_square_now slanted = true. Proof. now vm_compute. Qed.
Example not_on_one_token : curl Mq Steps half_square_now (tree [([], leaf half)]) = false. Proof. now vm_compute. Qed.
Example a_gradient_has_none : (* of KL(q||p), of its tokens, of E_p[-k1] *)
  curl Mq Single half_square slanted = false /\ curl Mq Steps (v Now K1) slanted = false /\ curl Mp Single (opp k1) slanted = false /\
  curl Mp Steps half_square_now slanted = false.
Proof. now vm_compute. Qed.
Example detached_it_is_not_still : (* E_q[grad sg(k1) k1] = E_q[grad k1^2/2]: what is detached moves with the policy *)
  curl Mq Steps (mul (var_ (Sample Now K1 true)) (v Now K1)) slanted = true /\ curl Mq Single (mul sg_k1 k1) slanted = false.
Proof. now vm_compute. Qed.
Example a_curl_in_no_model : curl Mq Steps half_square_now (tree [([0], leaf half)]) = false. Proof. now vm_compute. Qed.

(* the settings are inhabited: sequences of one, two and three tokens, other densities and other directions after each prefix *)
Local Open Scope Q_scope.
Definition three_lengths : model :=
  Model [([], Node [1#5; 1#3; 7#15] [1#7; 2#7; 4#7] [1#2; 1#8; 3#8] [1#2; 1#8; 3#8] [1; 0; 3#4] [0; 1; 2] [[1; 2; 5]; [1; -1; 3]; [2; 1; -3]]);
    ([1%nat], Node [1#3; 2#3] [3#4; 1#4] [2#5; 3#5] [2#5; 3#5] [1#2; 2] [1; 0] [[3; -1]; [2; 7]; [1; 4]]);
    ([1%nat; 0%nat], Node [1#4; 3#4] [1#2; 1#2] [1#6; 5#6] [1#6; 5#6] [-1; 1] [2; 0] [[1; 6]; [-2; 3]; [5; 2]])]
    [1%nat; 0%nat; 1%nat] [3; 2; 5; 7; 11; 13; 17].
Example three_lengths_are_a_setting : valid three_lengths = true.
Proof. now vm_compute. Qed.
