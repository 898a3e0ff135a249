(* Independence: a mean over a batch is a product of means, and of moments of sums. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances Stepwise Densities.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).
Notation env_sum := (env_sum S par). Notation constant_env := (constant_env S par). Notation holds := (holds S par).
Notation speaks_within := (speaks_within S par).

Lemma dmon_filter e f m : dmon e m = dmon e (filter (fun '(v, _) => f v) m) * dmon e (filter (fun '(v, _) => negb (f v)) m).
Proof. induction m as [|[v k] m IH]; cbn [filter dmon]; [ring|]. rewrite IH. destruct (f v); cbn [negb dmon]; ring. Qed.
Lemma dlin_filter e f l : dlin e l = dlin e (filter (fun '(_, k) => negb (f k)) l) + dlin e (filter (fun '(_, k) => f k) l).
Proof. induction l as [|[c m] l IH]; cbn [filter dlin]; [ring|]. rewrite IH. destruct (f m); cbn [negb dlin]; ring. Qed.
Lemma cut_ok e z t : dterm e t = dterm e (fst (cut z t)) * dterm e (snd (cut z t)).
Proof.
  destruct t as [[c m] l]. cbn [cut fst snd dterm].
  rewrite (dmon_filter e (at_slot z) m), (dlin_filter e (mwithin (elsewhere z)) l), exp_plus, Q2R_1. ring.
Qed.
Lemma count_one i z : one_position z = true -> In z (slots i) -> count z (draws i (size S)) = 1%nat.
Proof.
  intros O I. destruct i, z; try discriminate; cbn in I; try (exfalso; intuition discriminate);
    cbn [draws]; rewrite ?count_cons, ?count_repeat; reflexivity.
Qed.
Lemma positions_ok pr i z n : holds pr -> positions pr i z = Some n -> den (penv par) n = INR (count z (draws i (size S))).
Proof.
  intros [_ [_ [H _]]]. unfold positions. destruct (batch_size pr) as [[j nz]|]; [|discriminate]. specialize (H j nz eq_refl).
  pose proof (size_ok S) as Z.
  destruct i, z; try discriminate; intros K; apply Some_inj in K; subst n; cbn [draws]; rewrite ?count_cons, count_repeat;
    rewrite sub_ok, var_ok, konst_ok by apply penv_ok; cbn [penv]; rewrite H; cbn [same_slot scode Nat.eqb Nat.add];
    rewrite minus_INR by lia; unfold Q2R; cbn; field.
Qed.
Lemma whole_ok z x a : within (movable z) a = true -> within moved_there (emap to_whole a) = true ->
  den (env (alone S x)) (emap to_whole a) = den (env (Setting.add S z x (nobody S))) a.
Proof.
  intros A B. set (e := fun v => env (alone S x) (to_whole v)).
  transitivity (den e (emap to_whole a)).
  - apply (within_ok moved_there); [|exact B]. intros [y b sg|j nz|[|[] [|]] j c sg] V; try discriminate; try reflexivity.
    destruct y; try discriminate. destruct b, sg; reflexivity.
  - transitivity (den e a).
    + apply emap_ok.
      * intros v V. unfold e. destruct v as [y [] sg|j nz|]; cbn [to_whole to_slot invertible] in *; try (destruct y; discriminate); now apply env_ok.
      * intros [y [] sg| |]; try reflexivity. unfold e, to_whole. cbn [to_slot]. now rewrite map_map.
      * intros [[] [] sg| |]; reflexivity.
    + apply (within_ok (movable z)); [|exact A]. intros [y b sg|j nz|[|y [|]] j c sg] V; try discriminate; try reflexivity; unfold e.
      2: { cbn [movable] in V. apply andb_prop in V as [V O]. apply same_slot_eq in V. subst y. cbn [to_whole to_slot map]. unfold Statements.env.
        cbn [val map]. unfold Setting.add, alone, nobody. cbn [same_slot scode Nat.eqb]. now rewrite same_slot_refl. }
      destruct b; cbn [movable] in V; try discriminate; apply andb_prop in V as [V O]; apply same_slot_eq in V; subst y; destruct z, sg; try discriminate; reflexivity.
Qed.
Lemma adds_up_ok z v w : adds_up z v = true -> env w v = Sum (w z) (fun x => env (alone S x) (to_whole v)).
Proof.
  destruct v as [y b sg| |]; try discriminate. destruct b; cbn [adds_up]; try discriminate; intros Q; apply same_slot_eq in Q; subst y;
    cbn [to_whole to_slot]; rewrite env_sum by easy; apply Sum_ext; intros x _; rewrite env_sum by easy; symmetry; apply Rplus_0_r.
Qed.
Lemma factors_ok z m l w : factors z m = Some l ->
  dmon (env w) m = fold_right (fun v acc => Sum (w z) (fun x => env (alone S x) v) * acc) 1 l.
Proof.
  revert l; induction m as [|[v k] m IH]; intros l; cbn [factors dmon].
  - intros H. apply Some_inj in H; subst l. reflexivity.
  - destruct (adds_up z v) eqn:A; [|discriminate]. pose proof (adds_up_ok z v w A) as V.
    assert (I : invertible v = false) by (destruct v as [[] [] ?| |]; cbn in *; congruence).
    destruct k as [|[]|]; try discriminate.
    + destruct p; try discriminate. destruct (factors z m) as [r|]; [|discriminate].
      intros H. apply Some_inj in H; subst l. cbn [fold_right]. rewrite <- (IH r eq_refl), <- V. unfold power. rewrite I. change (Z.to_nat 2) with 2%nat. cbn [pow]. ring.
    + destruct (factors z m) as [r|]; [|discriminate].
      intros H. apply Some_inj in H; subst l. cbn [fold_right]. rewrite <- (IH r eq_refl), <- V, power_1. ring.
Qed.
Lemma one_slot_ok pr i m z t a : holds pr -> probability m = true -> In z (slots i) -> one_slot pr i m z t = Some a ->
  E S m (theta S) 0 (repeat z (count z (draws i (size S)))) (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M I. unfold one_slot. destruct (one_position z) eqn:O.
  - rewrite (count_one i z O I). unfold guard. destruct (_ && _)%bool eqn:W; [|discriminate]. apply andb_prop in W as [W1 W2].
    intros H. apply Some_inj in H; subst a. cbn [Statements.dside dproduct Statements.datom]. rewrite one_ok.
    unfold mean, mean_at. cbn [draws repeat E spread stepwise]. rewrite Rmult_1_r, Rmult_1_l, Rplus_0_r. apply Sum_ext; intros x _. f_equal.
    change (Setting.add S Whole x (nobody S)) with (alone S x). rewrite (whole_ok z x [t] W1 W2). cbn [den]. ring.
  - destruct t as [[c k] [|? ?]]; [|now destruct k].
    assert (Nothing : k = [] -> guard (qz (Qred (c - 1))) [(one, [])] = Some a ->
      E S m (theta S) 0 (repeat z (count z (draws i (size S)))) (fun w => dterm (env w) (c, k, [])) = dside a).
    { intros -> H. unfold guard in H. destruct (qz (Qred (c - 1))) eqn:C; [|discriminate]. apply Some_inj in H; subst a.
      apply qz_ok in C. rewrite Q2R_red, Q2R_minus, Q2R_1 in C. cbn [Statements.dside dproduct dterm dmon dlin]. rewrite one_ok, exp_0.
      rewrite E_const by (now destruct m). lra. }
    destruct k as [|kk k]; [exact (Nothing eq_refl)|clear Nothing]. set (k' := kk :: k) in *. clearbody k'. clear kk k. rename k' into k.
    destruct (positions pr i z) as [n|] eqn:Q; [|discriminate].
    apply (positions_ok pr i z n P) in Q. set (N := count z (draws i (size S))) in *.
    destruct (qz (Qred (c - 1))) eqn:C; [|discriminate]. apply qz_ok in C. rewrite Q2R_red, Q2R_minus, Q2R_1 in C.
    assert (C1 : Q2R c = 1) by lra.
    destruct (factors z k) as [l|] eqn:F; [|discriminate].
    assert (V : forall w, dterm (env w) (c, k, []) = fold_right (fun v acc => Sum (w z) (fun x => env (alone S x) v) * acc) 1 l).
    { intros w. cbn [dterm dlin]. rewrite C1, exp_0, (factors_ok z k l w F). ring. }
    rewrite (E_ext S m _ _ _ _ _ V).
    assert (One : forall v, mean S m Single (fun w => den (env w) (var_ v)) =
      Sum (support S m 0) (fun x => density S m (theta S) x * env (alone S x) v)).
    { intros v. unfold mean, mean_at. cbn [draws E spread stepwise]. apply Sum_ext; intros x _. f_equal.
      change (Setting.add S Whole x (nobody S)) with (alone S x). apply var_ok. }
    destruct l as [|u [|v [|? ?]]]; try discriminate; intros H; apply Some_inj in H; subst a;
      cbn [Statements.dside dproduct Statements.datom fold_right]; rewrite ?one_ok, ?One, ?Q.
    + rewrite (E_ext S m _ _ _ _ (fun w => Sum (w z) (fun x => env (alone S x) u))) by (intros; ring).
      rewrite first_moment by exact M. ring.
    + rewrite (E_ext S m _ _ _ _ (fun w => Sum (w z) (fun x => env (alone S x) u) * Sum (w z) (fun x => env (alone S x) v))) by (intros; ring).
      rewrite second_moment by exact M. rewrite mul_ok, sub_ok, one_ok, Q by apply penv_ok.
      replace (mean S m Single (fun w => den (env w) (mul (var_ u) (var_ v)))) with
        (Sum (support S m 0) (fun x => density S m (theta S) x * (env (alone S x) u * env (alone S x) v))); [ring|].
      unfold mean, mean_at. cbn [draws E spread stepwise]. apply Sum_ext; intros x _. f_equal.
      change (Setting.add S Whole x (nobody S)) with (alone S x). rewrite mul_ok, !var_ok by apply env_ok. reflexivity.
Qed.
Lemma by_slots_ok pr i m : holds pr -> probability m = true -> forall zs t a ds, NoDup zs ->
  (forall z, In z zs -> In z (slots i) /\ count z ds = count z (draws i (size S))) -> by_slots pr i m zs t = Some a ->
  E S m (theta S) 0 ds (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M. assert (N : normed m = true) by now destruct m. assert (U : summed m = true) by now destruct m.
  induction zs as [|z zs IH]; intros t a ds D C; cbn [by_slots].
  - unfold guard. destruct (constant [t]) eqn:K; [|discriminate]. intros H. apply Some_inj in H; subst a.
    cbn [Statements.dside dproduct]. rewrite <- (E_const S m 0 ds (den (penv par) [t] * 1 + 0) N). apply E_ext; intros w.
    rewrite <- (constant_env [t] w K). cbn [den]. ring.
  - pose proof (fun w => cut_ok (env w) z t) as T. destruct (cut z t) as [b c]. cbn [fst snd] in T.
    destruct (one_slot pr i m z b) as [x|] eqn:X; [|discriminate]. destruct (by_slots pr i m zs c) as [y|] eqn:Y; [|discriminate].
    unfold guard. destruct (_ && _)%bool eqn:W; [|discriminate]. apply andb_prop in W as [W1 W2].
    intros H. apply Some_inj in H; subst a. rewrite stimes_ok by exact par_ok.
    apply NoDup_cons_iff in D as [D1 D2]. destruct (C z (or_introl eq_refl)) as [C1 C2].
    rewrite (E_ext S m _ _ _ _ (fun w => den (env w) [b] * den (env w) [c])) by (intros; rewrite T; cbn [den]; ring).
    rewrite (independent S m _ _ (same_slot z) ds _ _ U (speaks_within _ _ W1) (speaks_within _ _ W2)).
    f_equal.
    + rewrite filter_same, C2, <- (one_slot_ok pr i m z b x P M C1 X). apply E_ext; intros w. cbn [den]. ring.
    + rewrite <- (IH c y (filter (except (same_slot z)) ds) D2); [apply E_ext; intros w; cbn [den]; ring| |exact Y].
      intros u Hu. destruct (C u (or_intror Hu)) as [Cu1 Cu2]. split; [exact Cu1|]. rewrite <- Cu2. unfold count.
      rewrite filter_apart; [reflexivity|]. destruct (same_slot u z) eqn:Q; [apply same_slot_eq in Q; now subst|reflexivity].
Qed.

(* one step of one sequence beside the others *)
Lemma beside_others_ok pr m t a : holds pr -> probability m = true -> beside_others pr m t = Some a ->
  mean S m BatchSteps (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M. unfold beside_others. pose proof (fun w => cut_ok (env w) Others t) as T. destruct (cut Others t) as [b c]. cbn [fst snd] in T.
  destruct (one_slot pr BatchSteps m Others b) as [x|] eqn:X; [|discriminate]. unfold guard. destruct (_ && _)%bool eqn:W; [|discriminate].
  apply andb_prop in W as [W1 W2]. intros H. apply Some_inj in H; subst a. rewrite stimes_ok by exact par_ok.
  cbn [Statements.dside dproduct Statements.datom]. rewrite one_ok.
  pose proof (one_slot_ok pr BatchSteps m Others b x P M (or_intror (or_introl eq_refl)) X) as O.
  assert (D : others S BatchSteps = repeat Others (count Others (draws BatchSteps (size S)))).
  { unfold others. cbn [draws tl]. now rewrite count_cons, count_repeat. }
  rewrite <- D, (E_count S m _ 0 1 _ _ ltac:(now destruct m)) in O. rewrite Rmult_1_r, Rmult_1_l, Rplus_0_r, <- O.
  unfold mean. rewrite !stepwise_mean, Rmult_comm by reflexivity. rewrite Rmult_comm, <- Sum_scal.
  apply Sum_ext; intros y _. rewrite <- Rmult_assoc, (Rmult_comm _ (density S m (theta S) y)), Rmult_assoc. f_equal.
  rewrite <- Sum_scal. apply Sum_ext; intros e _.
  set (k := den (env (there S e y (nobody S))) [c]).
  assert (K : forall w, drawn S (others S BatchSteps) w -> den (env (there S e y w)) [c] = k).
  { intros w Dw. apply (speaks_within (except (same_slot Others)) [c] W2). intros z Z.
    assert (Oz : w z = nobody S z) by (apply (others_alone S BatchSteps z w eq_refl); [intros ->; discriminate|exact Dw]).
    unfold there, at_place, Setting.add. rewrite Oz. reflexivity. }
  rewrite (E_drawn S m _ _ _ (fun w => dterm (env (there S e y w)) t) (fun w => k * dterm (env w) b)).
  - rewrite E_scal. cbn [others draws tl E]. rewrite Rmult_comm. reflexivity.
  - intros w Dw. rewrite T, <- (K w Dw). cbn [den]. rewrite Rplus_0_r, Rmult_comm. f_equal.
    pose proof (speaks_within (same_slot Others) [b] W1 (there S e y w) w) as Q. cbn [den] in Q. rewrite !Rplus_0_r in Q. apply Q.
    intros z Z. apply same_slot_eq in Z. now subst z.
Qed.
Theorem apart_ok pr i m t a : holds pr -> probability m = true -> apart pr i m t = Some a ->
  mean S m i (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M. assert (O : stepwise i = false -> by_slots pr i m (slots i) t = Some a -> mean S m i (fun w => dterm (env w) t) = dside a).
  { intros T H. rewrite plain_mean by exact T. apply (by_slots_ok pr i m P M (slots i) t a _ (slots_once i)); [|exact H]. now split. }
  destruct i; cbn [apart]; try (now apply O); [discriminate|now apply beside_others_ok].
Qed.
End Soundness.
