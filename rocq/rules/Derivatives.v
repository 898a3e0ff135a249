(* The chain rule, and the log-derivative rule: the measure moves, and what is averaged does. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).
Notation env_sum := (env_sum S par).

Definition still (v : var) (t : R) (w : world S) : R := if steady v then val S par v t w else val S par v (theta S) w.
Lemma val_now w v : val S par v (theta S) w = env w v. Proof. reflexivity. Qed.
Lemma sum_derive (l : list (outcome S)) (f f' : R -> outcome S -> R) :
  (forall y x, is_derive (fun l => f l x) y (f' y x)) ->
  is_derive (fun t => Sum l (fun x => f (ln (q S t x)) x)) (theta S) (Sum l (fun x => f' (ln (q0 S x)) x * s S x)).
Proof.
  intros H. apply (Sum_derive l (fun t x => f (ln (q S t x)) x)). intros x _.
  apply (derive_comp (fun l => f l x) (fun t => ln (q S t x))); [apply H|apply s_derive].
Qed.
Lemma log_derive (l : list (outcome S)) (c : outcome S -> R) :
  is_derive (fun t => Sum l (fun x => ln (q S t x) - c x)) (theta S) (Sum l (s S)).
Proof.
  rewrite (Sum_ext l (s S) (fun x => 1 * s S x)) by (intros; ring).
  apply (sum_derive l (fun y x => y - c x) (fun _ _ => 1)). intros y x. auto_derive; [easy|ring].
Qed.
Definition few (w : world S) : Prop := forall z, one_position z = true -> (List.length (w z) <= 1)%nat.
Lemma still_slope v w : few w -> is_derive (fun t => still v t w) (theta S)
  (match slope v with Some d => dmon (fun v => still v (theta S) w) d | None => 0 end).
Proof.
  intros W. destruct v as [z b sg|j nz];
    [|apply (is_derive_ext (fun _ => par j nz)); [reflexivity|cbn [slope]; apply derive_const]]. destruct sg.
  - apply (is_derive_ext (fun _ => val S par (Sample z b true) (theta S) w)).
    + intros t. unfold still. destruct z, b; reflexivity.
    + destruct b; cbn [slope]; apply derive_const.
  - assert (C : (forall t, still (Sample z b false) t w = val S par (Sample z b false) (theta S) w) ->
      is_derive (fun t => still (Sample z b false) t w) (theta S) 0).
    { intros K. apply (is_derive_ext (fun _ => val S par (Sample z b false) (theta S) w)); [intros; symmetry; apply K|apply derive_const]. }
    assert (D : dmon (fun v => still v (theta S) w) [(score z, 1%Z)] = Sum (w z) (s S)).
    { unfold score, still. cbn [dmon steady]. rewrite power_1, Rmult_1_r. destruct z; reflexivity. }
    destruct b as [| | | | | |i|i d]; cbn [slope]; try (apply C; intros t; destruct z; reflexivity).
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (p S x)))); [intros t; destruct z; reflexivity|apply log_derive].
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (mu S x)))); [intros t; destruct z; reflexivity|apply log_derive].
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - 0))); [|apply (log_derive (w z) (fun _ => 0))].
      intros t. rewrite (Sum_ext (w z) _ (fun x => ln (q S t x))) by (intros; ring). destruct z; reflexivity.
    + destruct (one_position z) eqn:O; [|apply C; intros t; unfold still; cbn [steady]; rewrite O; reflexivity].
      pose proof (sum_derive (w z) (fun y x => fn S i d y x) (fun y x => fn S i (Datatypes.S d) y x) (fun y x => fn_diff S i d y x)) as F.
      apply (is_derive_ext (fun t => Sum (w z) (fun x => fn S i d (ln (q S t x)) x))).
      { intros t. unfold still. cbn [steady]. rewrite O. destruct z; reflexivity. }
      replace (dmon _ _) with (Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x * s S x)); [exact F|].
      transitivity (Sum (w z) (s S) * Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x)).
      * specialize (W z O). destruct (w z) as [|x [|y l]]; cbn [Sum List.length] in *; [ring|ring|lia].
      * unfold score, still. cbn [dmon steady]. rewrite O, !power_1, Rmult_1_r. destruct z; reflexivity.
Qed.
Lemma still_loss a t w : smooth a = true -> as_loss S par a t w = den (fun v => still v t w) a.
Proof. intros H. apply (within_ok steady); [|exact H]. intros v V. unfold still. now rewrite V. Qed.
Lemma loss_derive a w : smooth a = true -> few w ->
  is_derive (fun t => as_loss S par a t w) (theta S) (den (env w) (derivative a)).
Proof.
  intros H W. apply (is_derive_ext (fun t => den (fun v => still v t w) a)); [intros; now rewrite still_loss|].
  replace (den (env w) (derivative a)) with (den (fun v => still v (theta S) w) (derivative a)).
  - apply (derive_by_ok slope slope_inv (fun v t => still v t w)).
    + intros v t I. unfold still. destruct (steady v); now apply val_ok.
    + intros v. now apply still_slope.
  - apply den_ext. intros v. unfold still. now destruct (steady v).
Qed.
Lemma drawn_few i w : drawn S (draws i (size S)) w -> few w.
Proof.
  intros D z O. rewrite (D z). unfold count.
  assert (K : forall y n, one_position y = false -> filter (same_slot z) (repeat y n) = []).
  { intros y n Y. induction n as [|n IH]; [reflexivity|]. cbn [repeat filter].
    destruct (same_slot z y) eqn:Q; [apply same_slot_eq in Q; congruence|exact IH]. }
  destruct i, z; try discriminate; cbn [draws filter]; cbn; rewrite ?K by reflexivity; cbn; lia.
Qed.
Lemma reached_few i w : reached S i w -> few w.
Proof.
  unfold reached. destruct (stepwise i) eqn:T; [|apply drawn_few]. intros [v [y [c [D [_ [_ ->]]]]]] z O.
  pose proof (drawn_few i v D z O) as F. destruct z; try discriminate; try exact F.
  cbn [at_place Setting.add same_slot scode Nat.eqb List.length].
  pose proof (D Now) as N. unfold at_place, Setting.add. cbn [same_slot scode Nat.eqb List.length]. rewrite N.
  destruct i; try discriminate; cbn [draws]; rewrite ?count_cons, ?count_repeat; cbn; lia.
Qed.
Lemma grad_ok i m a : smooth a = true -> mean S m i (grad S (as_loss S par a)) = mean S m i (fun w => den (env w) (derivative a)).
Proof.
  intros H. apply mean_at_reached. intros w D. apply is_derive_unique, loss_derive; [exact H|apply (reached_few i w D)].
Qed.
Lemma spread_derive i a w : smooth a = true -> drawn S (draws i (size S)) w ->
  is_derive (fun t => spread S i (as_loss S par a t) w) (theta S) (spread S i (fun w => den (env w) (derivative a)) w).
Proof.
  intros H D. unfold spread. destruct (stepwise i) eqn:T.
  - apply (Sum_derive _ (fun t c => as_loss S par a t (at_place S c w))). intros c C. apply (loss_derive a _ H).
    apply (reached_few i). now apply reached_place.
  - apply loss_derive; [exact H|apply (drawn_few i w D)].
Qed.
Lemma spread_total i (F : world S -> R) f w :
  spread S i F w * total S (slots i) f w = spread S i (fun w => F w * total S (slots i) f w) w.
Proof.
  unfold spread. destruct (stepwise i) eqn:T; [|reflexivity]. rewrite Rmult_comm, <- Sum_scal. apply Sum_ext; intros c _.
  rewrite Rmult_comm. f_equal. destruct i; try discriminate; reflexivity.
Qed.
Lemma mean_total i m a : mean S m i (fun w => den (env w) a * total S (slots i) (s S) w) =
  dside (map (fun z => (one, [Mean i m (mul (tidy a) (var_ (score z)))])) (slots i)).
Proof.
  unfold total. induction (slots i) as [|z zs IH]; cbn [map Statements.dside Sum].
  - unfold mean. rewrite (mean_at_ext S _ _ _ _ (fun _ => 0)) by (intros; cbn [Sum]; ring). apply mean_at_zero.
  - rewrite <- IH. rewrite one_ok. cbn [dproduct Statements.datom]. rewrite Rmult_1_l, Rmult_1_r. unfold mean. rewrite <- mean_at_plus.
    apply mean_at_ext; intros w. rewrite mul_ok, tidy_ok, var_ok by apply env_ok. unfold score. rewrite env_sum by easy. cbn [each].
    change (fun x => s S x) with (s S). ring.
Qed.
Lemma moving_derive i m a : smooth a = true -> is_derive (moving S par i m a) (theta S)
  (datom (MeanGradient i m a) + match m with Mq => dside (map (fun z => (one, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i)) | _ => 0 end).
Proof.
  intros H. pose proof (E_derive S m 0 (draws i (size S)) (slots i) (fun t => spread S i (as_loss S par a t))
    (spread S i (fun w => den (env w) (derivative a))) (slots_once i) (draws_in i (size S)) (fun w D => spread_derive i a w H D)) as D.
  match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
  cbn [Statements.datom]. rewrite (grad_ok i m a H). rewrite E_plus. f_equal.
  destruct m; try apply E_zero. rewrite <- mean_total. apply E_ext. intros w. apply spread_total.
Qed.
Lemma log_derivative_ok l z : log_derivative_side l = Some z -> is_derive (moved S par l) (theta S) (dside z).
Proof.
  revert z; induction l as [|[c [[[i m] a]|]] l IH]; intros z; cbn [log_derivative_side moved].
  - intros H. apply Some_inj in H; subst z. apply derive_const.
  - destruct (log_derivative_side l) as [rest|]; [|discriminate]. unfold guard. destruct (smooth a) eqn:Sm; [|discriminate].
    intros H. apply Some_inj in H; subst z. rewrite app_ok. cbn [Statements.dside dproduct].
    pose proof (derive_plus _ _ _ _ _ (derive_scal _ (den (penv par) c) _ _ (moving_derive i m a Sm)) (IH _ eq_refl)) as D.
    match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
    destruct m; cbn [Statements.dside]; try ring.
    rewrite <- (map_map (fun z => Mean i Mq (mul (tidy a) (var_ (score z)))) (fun x => (c, [x]))).
    rewrite scaled_ok, map_map. ring.
  - intros H. pose proof (derive_plus _ _ _ _ _ (derive_const (den (penv par) c) (theta S)) (IH z H)) as D.
    rewrite Rplus_0_l in D. exact D.
Qed.
End Soundness.
