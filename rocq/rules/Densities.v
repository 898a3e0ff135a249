(* Densities: a change of measure, and what does not depend on a slot, beside its score function or a ratio of densities. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances Stepwise.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).
Notation env_sum := (env_sum S par). Notation constant_env := (constant_env S par).

Lemma logd_ok z m w : summed m = true -> dlin (env w) (logd z m) = Sum (w z) (fun x => ln (density S m (theta S) x)).
Proof.
  pose proof Q2R_1 as A. pose proof Q2R_m1 as B.
  destruct m; try discriminate; intros _; cbn [logd dlin dmon]; rewrite ?power_1, ?A, ?B, ?env_sum by easy; cbn [each density].
  - unfold q0. ring.
  - rewrite Sum_minus. unfold q0. ring.
  - rewrite Sum_minus. unfold q0. ring.
  - rewrite (Sum_ext (w z) _ (fun _ => 0)) by (intros; apply ln_1). now rewrite Sum_zero.
Qed.
Lemma lopp_ok e v : dlin v (lopp e) = - dlin v e.
Proof. induction e as [|[c m] e IH]; cbn [lopp map dlin]; [ring|]. fold (lopp e). rewrite IH, Q2R_opp; ring. Qed.
Notation log_of m n := (fun x => ln (density S m (theta S) x) - ln (density S n (theta S) x)).
Lemma log_ratio_ok z m n w : summed m = true -> summed n = true -> dlin (env w) (log_ratio z m n) = Sum (w z) (log_of m n).
Proof. intros M N. unfold log_ratio. rewrite ladd_ok, lopp_ok, !logd_ok, Sum_minus by easy. ring. Qed.
Lemma ratio_ok i m n w : summed m = true -> summed n = true ->
  den (env w) (ratio i m n) = exp (total S (factors_of i) (log_of m n) w).
Proof.
  intros M N. unfold ratio. rewrite exp_ok. f_equal. unfold total.
  induction (factors_of i) as [|z zs IH]; cbn [fold_right Sum]; [reflexivity|]. rewrite ladd_ok, log_ratio_ok, IH by easy. reflexivity.
Qed.
Lemma among_in z i : among z i = true -> In z (slots i).
Proof. intros H. apply existsb_exists in H as [y [Y Q]]. apply same_slot_eq in Q. now subst. Qed.
Lemma plain_mean i m F : stepwise i = false -> mean S m i F = E S m (theta S) 0 (draws i (size S)) F.
Proof. intros T. apply E_ext. intros w. unfold spread. now rewrite T. Qed.
Lemma mean_constant i m c : normed m = true -> stepwise i = false -> constant c = true -> datom (Mean i m c) = den (penv par) c.
Proof.
  intros N T C. cbn [Statements.datom]. rewrite (plain_mean i m _ T), <- (E_const S m 0 (draws i (size S)) (den (penv par) c) N). apply E_ext; intros w. now apply constant_env.
Qed.
Lemma only_slot_ok z i m (F G : world S -> R) : stepwise i = false -> probability m = true -> speaks_of S (same_slot z) F -> speaks_of S (except (same_slot z)) G ->
  mean S m i (fun w => G w * F w) = mean S m i F * mean S m i G.
Proof.
  intros T M HF HG. assert (U : summed m = true) by now destruct m. rewrite !plain_mean by exact T.
  rewrite (E_ext S m _ _ _ _ (fun w => F w * G w)) by (intros; ring).
  rewrite (independent S m _ _ (same_slot z) _ F G U HF HG).
  rewrite <- (only_of S m 0 (same_slot z) _ G M HG). f_equal.
  assert (X : forall ds, filter (except (except (same_slot z))) ds = filter (same_slot z) ds).
  { intros ds. apply filter_ext. intros y. unfold except. apply negb_involutive. }
  rewrite (only_of S m 0 (except (same_slot z)) (draws i (size S)) F M).
  - now rewrite X.
  - intros w v A. apply HF. intros y Y. apply A. unfold except. now rewrite Y.
Qed.
Lemma speaks_sum z (f : outcome S -> R) : speaks_of S (same_slot z) (fun w => Sum (w z) f).
Proof. intros w v A. now rewrite (A z (same_slot_refl z)). Qed.
Lemma ratio_mean_one z k ds m n : probability m = true -> probability n = true ->
  E S m (theta S) k ds (fun w => exp (Sum (w z) (log_of n m))) = 1.
Proof.
  intros M N. assert (U : summed m = true) by now destruct m. assert (V : summed n = true) by now destruct n.
  rewrite (only_of S m k (except (same_slot z)) ds _ M).
  2:{ intros w v A. now rewrite (A z) by (unfold except; now rewrite same_slot_refl). }
  rewrite (filter_ext _ (same_slot z)) by (intros y; unfold except; apply negb_involutive).
  transitivity (E S n (theta S) k (filter (same_slot z) ds) (fun _ => 1)).
  - rewrite (change_of_measure S n m k _ [z] (fun _ => 1)); [|repeat constructor; easy| |exact V|exact U].
    + apply E_ext; intros w. unfold total. cbn [Sum]. rewrite Rplus_0_r. ring.
    + intros y Y. apply filter_In in Y as [_ Y]. apply same_slot_eq in Y. subst. now left.
  - apply E_const. now destruct n.
Qed.

(* ---------- what does not depend on a slot ---------- *)
Lemma parts_of_there i c y w : stepwise i = true -> drawn S (others S i) w ->
  there S c y w Past = [past_ c] /\ there S c y w Now = [now_ c] /\ there S c y w Future = [future_ c] /\ there S c y w Whole = [y].
Proof.
  intros T D. unfold there, at_place, Setting.add. cbn [same_slot scode Nat.eqb].
  rewrite (others_alone S i Past w T), (others_alone S i Now w T), (others_alone S i Future w T), (others_alone S i Whole w T) by easy. auto.
Qed.
(* where c speaks of what comes before a step, and of other sequences, those are averaged over first *)
Lemma before_ok i z c : stepwise i = true -> upstream i z c = true -> z = Now \/ z = Future ->
  forall y a b d w, drawn S (others S i) w ->
    den (env (there S (Place a b d) y w)) c = den (env (Setting.add S Past a (if same_slot z Future then Setting.add S Now b w else w))) c.
Proof.
  intros T U Z y a b d w D. set (g := fun y => before z y || same_slot Others y).
  assert (W : within (at_slots g) c = true).
  { assert (V : forall v, at_slots (before z) v = true -> at_slots g v = true).
    { intros [x e sg|j nz|zs j k sg] V; [|reflexivity|]; cbn in *; unfold g; [now rewrite V|].
      rewrite forallb_forall in *. intros x X. now rewrite (V x X). }
    destruct i; try discriminate; destruct Z as [-> | ->]; cbn [upstream] in U; try exact U; exact (within_weaker _ _ c V U). }
  pose proof (parts_of_there i (Place a b d) y w T D) as [P1 [P2 _]]. cbn [past_ now_] in P1, P2.
  pose proof (others_alone S i Past w T ltac:(easy) D) as O1. pose proof (others_alone S i Now w T ltac:(easy) D) as O2.
  apply (speaks_within S par g c W). intros x X. unfold g in X.
  destruct Z as [-> | ->], x; try discriminate; rewrite ?P1, ?P2; unfold there, at_place, Setting.add; cbn [same_slot scode Nat.eqb];
    rewrite ?O1, ?O2; reflexivity.
Qed.
(* a function of one slot that has the mean r *)
Section Averaged.
Variables (m : measure) (F : list (outcome S) -> R).
Hypothesis M : probability m = true.
Lemma averaged_elsewhere i z c r : stepwise i = false -> among z i && avoids z c = true ->
  mean S m i (fun w => F (w z)) = r -> mean S m i (fun w => den (env w) c * F (w z)) = r * mean S m i (fun w => den (env w) c).
Proof.
  intros T G R. apply andb_prop in G as [_ G]. rewrite (only_slot_ok z i m (fun w => F (w z)) _ T M); [now rewrite R| |now apply speaks_within].
  intros w v A. now rewrite (A z (same_slot_refl z)).
Qed.
(* the others, given one sequence *)
Lemma averaged_others c r y a : avoids Others c = true ->
  E S m (theta S) 1 (others S BatchSteps) (fun w => F (w Others)) = r ->
  E S m (theta S) 1 (others S BatchSteps) (fun w => den (env (there S a y w)) c * F (there S a y w Others)) =
  r * E S m (theta S) 1 (others S BatchSteps) (fun w => den (env (there S a y w)) c).
Proof.
  intros A R. set (k := den (env (there S a y (nobody S))) c).
  assert (K : forall w, drawn S (others S BatchSteps) w -> den (env (there S a y w)) c = k).
  { intros w D. apply (speaks_within S par (except (same_slot Others)) c A). intros x X.
    assert (O : w x = nobody S x) by (apply (others_alone S BatchSteps x w eq_refl); [intros ->; discriminate|exact D]).
    unfold there, at_place, Setting.add. rewrite O. reflexivity. }
  rewrite (E_drawn S m _ _ _ _ (fun w => k * F (w Others))) by (intros w D; now rewrite (K w D)).
  rewrite (E_drawn S m _ _ _ (fun w => den (env (there S a y w)) c) (fun _ => k)) by exact K.
  rewrite E_scal, R, E_const by now destruct m. ring.
Qed.
End Averaged.

Theorem upstream_score i z c : upstream i z c = true -> mean S Mq i (fun w => den (env w) c * Sum (w z) (s S)) = 0.
Proof.
  intros U. destruct (stepwise i) eqn:T.
  - destruct z; try (destruct i; discriminate).
    + (* others *) destruct i; try discriminate. unfold mean. rewrite stepwise_mean by reflexivity.
      rewrite <- (no_place S Mq). apply Sum_ext; intros y _. f_equal. apply Sum_ext; intros a _.
      rewrite (averaged_others Mq (fun l => Sum l (s S)) eq_refl c 0 y a U); [ring|apply slot_score_mean_zero].
    + pose proof (before_ok i Now c T U (or_introl eq_refl)) as B. cbn [same_slot scode Nat.eqb] in B.
      apply (score_of_a_step S i _ (fun a => E S Mq (theta S) 1 (others S i) (fun w => den (env (Setting.add S Past a w)) c)) T).
      intros y [a b d]. cbn [past_ now_]. rewrite Rmult_comm, <- E_scal. apply E_drawn. intros w D.
      rewrite (B y a b d w D). destruct (parts_of_there i (Place a b d) y w T D) as [_ [-> _]]. cbn [now_ Sum]. ring.
    + pose proof (before_ok i Future c T U (or_intror eq_refl)) as B. cbn [same_slot scode Nat.eqb] in B.
      apply (score_of_what_follows S i _ (fun a b => E S Mq (theta S) 1 (others S i) (fun w => den (env (Setting.add S Past a (Setting.add S Now b w))) c)) T).
      intros y [a b d]. cbn [past_ now_ future_]. rewrite Rmult_comm, <- E_scal. apply E_drawn. intros w D.
      rewrite (B y a b d w D). destruct (parts_of_there i (Place a b d) y w T D) as [_ [_ [-> _]]]. cbn [future_ Sum]. ring.
  - assert (G : among z i && avoids z c = true) by (destruct i; try discriminate; exact U).
    rewrite (averaged_elsewhere Mq (fun l => Sum l (s S)) eq_refl i z c 0 T G); [ring|].
    rewrite plain_mean by exact T. apply slot_score_mean_zero.
Qed.
Theorem upstream_ratio i z m n c : probability m = true -> probability n = true -> upstream i z c = true ->
  mean S m i (fun w => den (env w) c * exp (Sum (w z) (log_of n m))) = mean S m i (fun w => den (env w) c).
Proof.
  intros M N U. destruct (stepwise i) eqn:T.
  - destruct z; try (destruct i; discriminate).
    + destruct i; try discriminate. unfold mean. rewrite !stepwise_mean by reflexivity.
      apply Sum_ext; intros y _. f_equal. apply Sum_ext; intros a _.
      rewrite (averaged_others m (fun l => exp (Sum l (log_of n m))) M c 1 y a U); [ring|now apply ratio_mean_one].
    + pose proof (before_ok i Now c T U (or_introl eq_refl)) as B. cbn [same_slot scode Nat.eqb] in B.
      set (g := fun a => E S m (theta S) 1 (others S i) (fun w => den (env (Setting.add S Past a w)) c)).
      rewrite (ratio_of_a_step S m n i _ g M N T).
      * unfold mean. rewrite stepwise_mean by exact T. replace (support S m 0) with (outcomes S) by (now destruct m).
        apply Sum_ext; intros y _. f_equal. apply Sum_ext; intros [a b d] _. symmetry. apply E_drawn. intros w D. apply (B y a b d w D).
      * intros y [a b d]. cbn [past_ now_]. unfold g. rewrite Rmult_comm, <- E_scal. apply E_drawn. intros w D.
        rewrite (B y a b d w D). destruct (parts_of_there i (Place a b d) y w T D) as [_ [-> _]]. cbn [now_ Sum]. rewrite Rplus_0_r. ring.
    + pose proof (before_ok i Future c T U (or_intror eq_refl)) as B. cbn [same_slot scode Nat.eqb] in B.
      set (g := fun a b => E S m (theta S) 1 (others S i) (fun w => den (env (Setting.add S Past a (Setting.add S Now b w))) c)).
      rewrite (ratio_of_what_follows S m n i _ g M N T).
      * unfold mean. rewrite stepwise_mean by exact T. replace (support S m 0) with (outcomes S) by (now destruct m).
        apply Sum_ext; intros y _. f_equal. apply Sum_ext; intros [a b d] _. symmetry. apply E_drawn. intros w D. apply (B y a b d w D).
      * intros y [a b d]. cbn [past_ now_ future_]. unfold g. rewrite Rmult_comm, <- E_scal. apply E_drawn. intros w D.
        rewrite (B y a b d w D). destruct (parts_of_there i (Place a b d) y w T D) as [_ [_ [-> _]]]. cbn [future_ Sum]. rewrite Rplus_0_r. ring.
  - assert (G : among z i && avoids z c = true) by (destruct i; try discriminate; exact U).
    rewrite (averaged_elsewhere m (fun l => exp (Sum l (log_of n m))) M i z c 1 T G); [ring|].
    rewrite plain_mean by exact T. now apply ratio_mean_one.
Qed.
End Soundness.
