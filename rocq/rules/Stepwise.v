(* Means over the steps of a sequence: E_m[sum_t F] as a sum over sequences and places, and what does not depend on a step.

   Given the prefix, the score function of the next token has mean zero, and so has that of all that follows it; a ratio of
   densities has mean one likewise.  What comes before is fixed meanwhile. *)
From Coq Require Import Reals List Lra Lia Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting.
Import ListNotations.
Open Scope R_scope.

Section Stepwise.
Variable S : setting.
Notation X := (outcome S). Notation world := (world S).
Notation follow := (walk (next S)).

(* ---------- what a segment is worth ---------- *)
Definition next_density (m : measure) (t : R) (u : list (token S)) (a : token S) : R :=
  match m with Mq => next_q S t u a | Mp => next_p S u a | Mmu => next_mu S u a | _ => 1 end.
Lemma density_product m t x : probability m = true -> density S m t x = product (next_density m t) (fst x) (snd x).
Proof. now destruct m. Qed.
Lemma next_density_pos m u a : 0 < next_density m (theta S) u a.
Proof. destruct m; cbn; try lra; [apply next_q_pos|apply next_p_pos|apply next_mu_pos]. Qed.
Lemma next_density_sum m t u : probability m = true -> next S u <> [] -> Sum (next S u) (next_density m t u) = 1.
Proof. destruct m; cbn; try discriminate; intros _; [apply next_q_sum|apply next_p_sum|apply next_mu_sum]. Qed.
Lemma density_app m t u v w : density S m t (u, v ++ w) = density S m t (u, v) * density S m t (u ++ v, w).
Proof. destruct m; cbn; try ring; unfold q, p, mu; cbn [fst snd]; apply product_app. Qed.
Lemma log_density_adds m : additive (fun x => ln (density S m (theta S) x)).
Proof. intros u v w. rewrite density_app. apply ln_mult; apply density_pos. Qed.
Lemma score_adds : additive (s S).
Proof.
  intros u v w.
  pose proof (derive_mult _ _ _ _ _ (q_derive S (u, v)) (q_derive S (u ++ v, w))) as D.
  apply (is_derive_ext _ (fun t => q S t (u, v ++ w))) in D; [|intros t; symmetry; exact (density_app Mq t u v w)].
  apply is_derive_unique in D. rewrite (is_derive_unique _ _ _ (q_derive S (u, v ++ w))) in D.
  pose proof (density_app Mq (theta S) u v w) as P. cbn [density] in P. fold (q0 S) in P. rewrite P in D.
  pose proof (q0_pos S (u, v)). pose proof (q0_pos S (u ++ v, w)).
  apply (Rmult_eq_reg_l (q0 S (u, v) * q0 S (u ++ v, w))); [|apply Rgt_not_eq, Rmult_lt_0_compat; assumption].
  rewrite D. unfold q0. ring.
Qed.
Lemma q0_token u a : q0 S (u, [a]) = next_q S (theta S) u a.
Proof. unfold q0, q. cbn. ring. Qed.
Lemma token_score u : next S u <> [] -> Sum (next S u) (fun a => next_q S (theta S) u a * s S (u, [a])) = 0.
Proof.
  intros N. assert (D : is_derive (fun t => Sum (next S u) (next_q S t u)) (theta S)
    (Sum (next S u) (fun a => next_q S (theta S) u a * s S (u, [a])))).
  { apply (Sum_derive (next S u) (fun t a => next_q S t u a)). intros a _.
    apply (is_derive_ext (fun t => q S t (u, [a]))); [intros t; unfold q; cbn [product fst snd]; apply Rmult_1_r|].
    rewrite <- q0_token. apply q_derive. }
  apply is_derive_unique in D. rewrite <- D, (Derive_ext _ (fun _ => 1)) by (intros t; now apply next_q_sum). apply Derive_const.
Qed.
Lemma rest_score n u : Sum (follow n u) (fun v => q0 S (u, v) * s S (u, v)) = 0.
Proof.
  assert (D : is_derive (fun t => Sum (follow n u) (product (next_q S t) u)) (theta S)
    (Sum (follow n u) (fun v => q0 S (u, v) * s S (u, v)))).
  { apply (Sum_derive (follow n u) (fun t v => product (next_q S t) u v)). intros v _. apply (q_derive S (u, v)). }
  apply is_derive_unique in D. rewrite <- D, (Derive_ext _ (fun _ => 1)) by (intros t; apply walk_mass; intros; now apply next_q_sum).
  apply Derive_const.
Qed.

(* ---------- as sums over sequences and places ---------- *)
Definition others (i : index) : list slot := tl (draws i (size S)).
Lemma draws_stepwise i : stepwise i = true -> draws i (size S) = Whole :: others i. Proof. now destruct i. Qed.
Lemma others_alone i z w : stepwise i = true -> z <> Others -> drawn S (others i) w -> w z = [].
Proof.
  intros T N D. apply length_zero_iff_nil. rewrite (D z). destruct i; try discriminate; unfold others; cbn [draws tl]; [reflexivity|].
  rewrite count_repeat. destruct (same_slot z Others) eqn:Q; [apply same_slot_eq in Q; contradiction|reflexivity].
Qed.
Definition there (c : place) (y : X) (w : world) : world := at_place S c (add S Whole y w).
Theorem stepwise_mean t m i F : stepwise i = true -> mean_at S t m i F =
  Sum (support S m 0) (fun y => density S m t y * Sum (places y) (fun c => E S m t 1 (others i) (fun w => F (there c y w)))).
Proof.
  intros T. unfold mean_at. rewrite (draws_stepwise i T). cbn [E]. apply Sum_ext; intros y _. f_equal. rewrite <- E_Sum.
  apply E_drawn. intros w D. unfold spread. rewrite T. unfold add at 1. rewrite (others_alone i Whole w T) by easy.
  cbn [same_slot scode Nat.eqb flat_map]. now rewrite app_nil_r.
Qed.
Lemma over_prefixes m i F (H K : place -> R) : probability m = true -> stepwise i = true ->
  (forall y c, E S m (theta S) 1 (others i) (fun w => F (there c y w)) = H c) ->
  (forall n u, next S u <> [] -> at_prefix (next S) (next_density m (theta S)) n u H = at_prefix (next S) (next_density m (theta S)) n u K) ->
  mean S m i F = Sum (outcomes S) (fun y => density S m (theta S) y * Sum (places y) K).
Proof.
  intros M T A B. unfold mean. rewrite (stepwise_mean _ _ _ _ T).
  replace (support S m 0) with (outcomes S) by (destruct m; easy). unfold outcomes. rewrite !Sum_map.
  transitivity (Sum (follow (Datatypes.S (more S)) []) (fun v => product (next_density m (theta S)) [] v * Sum (places_after [] [] v) H)).
  - apply Sum_ext; intros v _. rewrite density_product by exact M. f_equal. apply Sum_ext; intros c _. apply A.
  - rewrite (by_prefixes (next S) (next_density m (theta S)) _ H K (fun n u _ => B n u) _ [] eq_refl). apply Sum_ext; intros v _. now rewrite density_product by exact M.
Qed.
Lemma no_place m : Sum (outcomes S) (fun y => density S m (theta S) y * Sum (places y) (fun _ => 0)) = 0.
Proof. rewrite (Sum_ext _ _ (fun _ => 0)), Sum_zero by (intros; rewrite Sum_zero; ring). reflexivity. Qed.
Lemma mass_after m n u a : probability m = true ->
  Sum (follow n (u ++ [a])) (product (next_density m (theta S)) (u ++ [a])) = 1.
Proof. intros M. apply walk_mass. intros. now apply next_density_sum. Qed.

(* ---------- causality ---------- *)
Theorem score_of_a_step i F (g : X -> R) : stepwise i = true ->
  (forall y c, E S Mq (theta S) 1 (others i) (fun w => F (there c y w)) = g (past_ c) * s S (now_ c)) -> mean S Mq i F = 0.
Proof.
  intros T H. rewrite <- (no_place Mq). apply (over_prefixes Mq i F _ _ eq_refl T H). intros n u N. unfold at_prefix. cbn [past_ now_].
  transitivity 0.
  - rewrite (Sum_ext _ _ (fun a => g ([], u) * (next_q S (theta S) u a * s S (u, [a])))).
    + rewrite Sum_scal, token_score by exact N. ring.
    + intros a _. rewrite (Sum_ext _ _ (fun v => (g ([], u) * s S (u, [a])) * product (next_density Mq (theta S)) (u ++ [a]) v)) by (intros; ring).
      rewrite Sum_scal, mass_after by easy. cbn [next_density]. ring.
  - rewrite (Sum_ext _ _ (fun _ => 0)), Sum_zero; [reflexivity|]. intros a _.
    rewrite (Sum_ext _ _ (fun _ => 0)), Sum_zero by (intros; ring). ring.
Qed.
Theorem score_of_what_follows i F (g : X -> X -> R) : stepwise i = true ->
  (forall y c, E S Mq (theta S) 1 (others i) (fun w => F (there c y w)) = g (past_ c) (now_ c) * s S (future_ c)) -> mean S Mq i F = 0.
Proof.
  intros T H. rewrite <- (no_place Mq). apply (over_prefixes Mq i F _ _ eq_refl T H). intros n u N. unfold at_prefix. cbn [past_ now_ future_].
  apply Sum_ext; intros a _. f_equal. rewrite (Sum_ext (follow n (u ++ [a])) (fun v => _ * 0) (fun _ => 0)), Sum_zero by (intros; ring).
  rewrite (Sum_ext _ _ (fun v => g ([], u) (u, [a]) * (q0 S (u ++ [a], v) * s S (u ++ [a], v)))).
  - rewrite Sum_scal, rest_score. ring.
  - intros v _. unfold q0, q. cbn [fst snd next_density]. change (next_density Mq (theta S)) with (next_q S (theta S)). ring.
Qed.
Notation log_of m n := (fun x => ln (density S m (theta S) x) - ln (density S n (theta S) x)).
Lemma ratio_exp m n x : exp (ln (density S n (theta S) x) - ln (density S m (theta S) x)) =
  density S n (theta S) x / density S m (theta S) x.
Proof. unfold Rminus. rewrite exp_plus, exp_Ropp, !exp_ln by apply density_pos. reflexivity. Qed.
Theorem ratio_of_a_step m n i F (g : X -> R) : probability m = true -> probability n = true -> stepwise i = true ->
  (forall y c, E S m (theta S) 1 (others i) (fun w => F (there c y w)) = g (past_ c) * exp (log_of n m (now_ c))) ->
  mean S m i F = Sum (outcomes S) (fun y => density S m (theta S) y * Sum (places y) (fun c => g (past_ c))).
Proof.
  intros M N T H. apply (over_prefixes m i F _ _ M T H). intros k u Z. unfold at_prefix. cbn [past_ now_]. transitivity (g ([], u)).
  - rewrite (Sum_ext _ _ (fun a => g ([], u) * next_density n (theta S) u a)).
    + rewrite Sum_scal, next_density_sum by assumption. ring.
    + intros a _. rewrite (Sum_ext _ _ (fun v => (g ([], u) * exp (log_of n m (u, [a]))) * product (next_density m (theta S)) (u ++ [a]) v)) by (intros; ring).
      rewrite Sum_scal, mass_after, ratio_exp, !density_product by assumption. cbn [fst snd product].
      pose proof (next_density_pos m u a). field. lra.
  - rewrite (Sum_ext _ _ (fun a => g ([], u) * next_density m (theta S) u a)).
    + rewrite Sum_scal, next_density_sum by assumption. ring.
    + intros a _. rewrite (Sum_ext _ _ (fun v => g ([], u) * product (next_density m (theta S)) (u ++ [a]) v)) by (intros; ring).
      rewrite Sum_scal, mass_after by assumption. ring.
Qed.
Theorem ratio_of_what_follows m n i F (g : X -> X -> R) : probability m = true -> probability n = true -> stepwise i = true ->
  (forall y c, E S m (theta S) 1 (others i) (fun w => F (there c y w)) = g (past_ c) (now_ c) * exp (log_of n m (future_ c))) ->
  mean S m i F = Sum (outcomes S) (fun y => density S m (theta S) y * Sum (places y) (fun c => g (past_ c) (now_ c))).
Proof.
  intros M N T H. apply (over_prefixes m i F _ _ M T H). intros k u Z. unfold at_prefix. cbn [past_ now_ future_].
  apply Sum_ext; intros a _. f_equal.
  rewrite (Sum_ext _ _ (fun v => g ([], u) (u, [a]) * product (next_density n (theta S)) (u ++ [a]) v)).
  - rewrite Sum_scal, mass_after by assumption.
    rewrite (Sum_ext _ _ (fun v => g ([], u) (u, [a]) * product (next_density m (theta S)) (u ++ [a]) v)) by (intros; ring).
    rewrite Sum_scal, mass_after by assumption. ring.
  - intros v _. rewrite ratio_exp, !density_product by assumption. cbn [fst snd].
    assert (0 < product (next_density m (theta S)) (u ++ [a]) v) by (apply product_pos, next_density_pos). field. lra.
Qed.

(* ---------- change of measure, along the parts of each sequence ---------- *)
Lemma log_ratio_adds m n : additive (log_of m n).
Proof. intros u v w. rewrite (log_density_adds m u v w), (log_density_adds n u v w). ring. Qed.
Theorem change_of_measure_at m n i F : summed m = true -> summed n = true ->
  mean S m i F = mean S n i (fun w => F w * exp (total S (factors_of i) (log_of m n) w)).
Proof.
  intros M N. unfold mean, mean_at.
  rewrite (change_of_measure S m n 0 _ (slots i) _ (slots_once i) (draws_in i (size S)) M N). apply E_drawn. intros w D.
  unfold spread. destruct (stepwise i) eqn:T.
  - rewrite Rmult_comm, <- Sum_scal. apply Sum_ext; intros c C. rewrite Rmult_comm. f_equal. f_equal.
    assert (Z : forall z, of_steps z = true -> w z = []).
    { intros z O. apply length_zero_iff_nil. rewrite (D z). destruct i; try discriminate; cbn [draws];
        rewrite ?count_cons, ?count_repeat; destruct z; try discriminate; reflexivity. }
    assert (L : exists y, w Whole = [y] /\ In c (places y)).
    { destruct (w Whole) as [|y' l] eqn:V; [easy|]. destruct l as [|? l].
      - exists y'. cbn [flat_map] in C. rewrite app_nil_r in C. auto.
      - pose proof (D Whole) as O. rewrite V in O. exfalso. destruct i; try discriminate; cbn [draws] in O;
          rewrite ?count_cons, ?count_repeat in O; cbn in O; lia. }
    destruct L as [x [V Ix]]. pose proof (parts_of_a_sum _ x c (log_ratio_adds m n) Ix) as P. cbv beta in P.
    destruct i; try discriminate; unfold total; cbn [slots factors_of Sum at_place add same_slot scode Nat.eqb];
      unfold at_place, add; cbn [same_slot scode Nat.eqb]; rewrite V, (Z Past), (Z Now), (Z Future) by reflexivity; cbn [Sum]; lra.
  - destruct i; try discriminate; reflexivity.
Qed.
End Stepwise.
