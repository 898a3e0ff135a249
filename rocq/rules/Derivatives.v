(* The chain rule, and the log-derivative rule: the measure moves, and what is averaged does. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances.
Import ListNotations.
Open Scope R_scope.

(* elements of which each variable is, near x, what it is in another way *)
Lemma within_locally (ok : var -> bool) (f g : var -> R -> R) x a :
  (forall v, ok v = true -> locally x (fun t => f v t = g v t)) -> within ok a = true ->
  locally x (fun t => den (fun v => f v t) a = den (fun v => g v t) a).
Proof.
  intros H. assert (M : forall m, mwithin ok m = true -> locally x (fun t => dmon (fun v => f v t) m = dmon (fun v => g v t) m)).
  { induction m as [|[v k] m IH]; cbn [mwithin forallb dmon]; [intros _; now apply filter_forall|]. intros W. apply andb_prop in W as [W1 W2].
    generalize (H v W1), (IH W2). intros A B. generalize (filter_and _ _ A B). apply filter_imp. intros t [-> ->]. reflexivity. }
  assert (L : forall e, lwithin ok e = true -> locally x (fun t => dlin (fun v => f v t) e = dlin (fun v => g v t) e)).
  { induction e as [|[c m] e IH]; cbn [lwithin forallb dlin]; [intros _; now apply filter_forall|]. intros W. apply andb_prop in W as [W1 W2].
    generalize (filter_and _ _ (M m W1) (IH W2)). apply filter_imp. intros t [-> ->]. reflexivity. }
  induction a as [|[[c m] e] a IH]; cbn [within forallb den dterm]; [intros _; now apply filter_forall|].
  intros W. apply andb_prop in W as [W W3]. apply andb_prop in W as [W1 W2].
  generalize (filter_and _ _ (filter_and _ _ (M m W1) (L e W2)) (IH W3)). apply filter_imp. intros t [[-> ->] ->]. reflexivity.
Qed.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).
Notation env_sum := (env_sum S par).

Notation at_time v t w := (val S par v (theta S) t w).
Notation slope_at v w := (match slope v with Some d => dmon (env w) d | None => 0 end).
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
(* where variables have slopes: a generic function at one position, a name if what defines it has one *)
Definition slopes_exist (ok : var -> bool) (w : world S) : Prop :=
  ((exists z i d, ok (Sample z (Fn i d) false) = true) -> few w) /\
  (forall zs k, ok (Named zs k Moving false) = true -> ex_derive (fun t => names S k (theta S) t (map w zs)) (theta S)).
Section Still.
Variable ok : var -> bool.
(* a line in the place of what need not have a slope *)
Definition still (v : var) (t : R) (w : world S) : R :=
  if ok v then at_time v (if steady v then t else theta S) w else env w v + (t - theta S) * slope_at v w.
Lemma still_now v w : still v (theta S) w = env w v.
Proof. unfold still. destruct (ok v); [now destruct (steady v)|]. unfold Rminus. rewrite Rplus_opp_r. ring. Qed.
Lemma line_slope (c d x : R) : is_derive (fun t => c + (t - x) * d) x d.
Proof. auto_derive; [easy|ring]. Qed.
Lemma still_slope v w : slopes_exist ok w -> is_derive (fun t => still v t w) (theta S) (slope_at v w).
Proof.
  intros [W O]. unfold still. destruct (ok v) eqn:K; [|apply line_slope].
  assert (C : (forall t, at_time v (if steady v then t else theta S) w = env w v) ->
    is_derive (fun t => at_time v (if steady v then t else theta S) w) (theta S) 0).
  { intros E. apply (is_derive_ext (fun _ => env w v)); [intros; symmetry; apply E|apply derive_const]. }
  destruct v as [z b sg|j nz|zs j c sg]; [|cbn [slope]; apply C; reflexivity|].
  2: { destruct c, sg; cbn [slope]; try (apply C; reflexivity). cbn [dmon]. rewrite power_1, Rmult_1_r. apply Derive_correct, (O zs j K). }
  destruct sg; [replace (slope (Sample z b true)) with (@None mon) by (now destruct b); apply C; intros t; destruct z, b; reflexivity|].
  assert (D : dmon (env w) [(score z, 1%Z)] = Sum (w z) (s S)).
  { unfold score. cbn [dmon]. rewrite power_1, Rmult_1_r. destruct z; reflexivity. }
  destruct b as [| | | | | |i|i d|]; cbn [slope]; try (apply C; intros t; destruct z; reflexivity).
  - rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (p S x)))); [intros t; destruct z; reflexivity|apply log_derive].
  - rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (mu S x)))); [intros t; destruct z; reflexivity|apply log_derive].
  - rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - 0))); [|apply (log_derive (w z) (fun _ => 0))].
    intros t. rewrite (Sum_ext (w z) _ (fun x => ln (q S t x))) by (intros; ring). destruct z; reflexivity.
  - destruct (one_position z) eqn:P; [|apply C; intros t; cbn [steady]; rewrite P; destruct z; reflexivity].
    pose proof (sum_derive (w z) (fun y x => fn S i d y x) (fun y x => fn S i (Datatypes.S d) y x) (fun y x => fn_diff S i d y x)) as F.
    apply (is_derive_ext (fun t => Sum (w z) (fun x => fn S i d (ln (q S t x)) x))).
    { intros t. cbn [steady]. rewrite P. destruct z; reflexivity. }
    replace (dmon _ _) with (Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x * s S x)); [exact F|].
    transitivity (Sum (w z) (s S) * Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x)).
    + pose proof (W (ex_intro _ z (ex_intro _ i (ex_intro _ d K))) z P) as L. destruct (w z) as [|x [|y l]]; cbn [Sum List.length] in *; [ring|ring|lia].
    + unfold score. cbn [dmon]. rewrite !power_1, Rmult_1_r. destruct z; reflexivity.
  - rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (old S x)))); [intros t; destruct z; reflexivity|apply log_derive].
Qed.
Lemma still_loss a t w : smooth a = true -> within ok a = true -> held S par a t w = den (fun v => still v t w) a.
Proof.
  intros H K. transitivity (den (fun v => at_time v (if steady v then t else theta S) w) a).
  - apply (within_ok steady); [|exact H]. intros v V. now rewrite V.
  - apply (within_ok ok); [|exact K]. intros v V. unfold still. now rewrite V.
Qed.
Lemma loss_derive a w : smooth a = true -> within ok a = true -> slopes_exist ok w ->
  is_derive (fun t => held S par a t w) (theta S) (den (env w) (derivative a)).
Proof.
  intros H K O. apply (is_derive_ext (fun t => den (fun v => still v t w) a)); [intros; now rewrite still_loss|].
  rewrite <- (den_ext (fun v => still v (theta S) w) (env w)) by (intros; apply still_now).
  apply (derive_by_ok slope slope_inv (fun v t => still v t w)).
  - intros v t I. unfold still. destruct (ok v); [now apply val_ok|]. replace (slope v) with (@None mon).
    + rewrite Rmult_0_r, Rplus_0_r. now apply env_ok.
    + destruct (slope v) eqn:E; [apply slope_inv in E; congruence|reflexivity].
  - intros v. replace (match slope v with Some d => _ | None => 0 end) with (slope_at v w); [now apply still_slope|].
    destruct (slope v) as [d|]; [|reflexivity]. induction d as [|[u n] d IH]; cbn [dmon]; [reflexivity|]. now rewrite IH, still_now.
Qed.
End Still.
Lemma drawn_few i w : drawn S (draws i (size S)) w -> few w.
Proof.
  intros D z O. rewrite (D z). unfold count.
  assert (K : forall y n, one_position y = false -> filter (same_slot z) (repeat y n) = []).
  { intros y n Y. induction n as [|n IH]; [reflexivity|]. cbn [repeat filter].
    destruct (same_slot z y) eqn:Q; [apply same_slot_eq in Q; congruence|exact IH]. }
  destruct i, z; try discriminate; cbn [draws filter]; cbn; rewrite ?K by reflexivity; cbn; lia.
Qed.
Lemma reached_few m i w : reached S m i w -> few w.
Proof.
  unfold reached. destruct (stepwise i) eqn:T; [|intros P; apply (drawn_few i), (possible_drawn S _ _ _ _ P)].
  intros [v [y [c [P [_ [_ ->]]]]]] z O. pose proof (possible_drawn S _ _ _ _ P) as D.
  pose proof (drawn_few i v D z O) as F. destruct z; try discriminate; try exact F.
  cbn [at_place Setting.add same_slot scode Nat.eqb List.length].
  pose proof (D Now) as N. unfold at_place, Setting.add. cbn [same_slot scode Nat.eqb List.length]. rewrite N.
  destruct i; try discriminate; cbn [draws]; rewrite ?count_cons, ?count_repeat; cbn; lia.
Qed.

(* ---------- names ---------- *)
Lemma even_power v x k : (0 <=? k)%Z = true -> Z.even k = true -> 0 <= power v x k.
Proof.
  intros P H. apply Z.leb_le in P. apply Z.even_spec in H as [j ->]. assert (J : (0 <= j)%Z) by (revert P; clear; intros; lia).
  replace (power v x (2 * j)) with (x ^ Z.to_nat j * x ^ Z.to_nat j); [apply Rle_0_sqr|]. rewrite <- pow_add.
  replace (Z.to_nat j + Z.to_nat j)%nat with (Z.to_nat (j + j)%Z) by (apply Z2Nat.inj_add; exact J).
  replace (2 * j)%Z with (j + j)%Z by ring.
  unfold power. destruct (invertible v); [|reflexivity].
  rewrite <- (Z2Nat.id (j + j)%Z) at 2 by lia. apply pow_powerRZ.
Qed.
Lemma above_zero_ok e f : above_zero f = true -> 0 < den e f.
Proof.
  unfold above_zero. intros H. apply andb_prop in H as [X A].
  assert (N : forall f, forallb (fun '(c, m, _) => (0 <? Qnum c)%Z && forallb (fun '(_, k) => (0 <=? k)%Z && Z.even k) m) f = true ->
    0 <= den e f /\ (existsb (fun '(_, m, _) => match m with [] => true | _ => false end) f = true -> 0 < den e f)).
  { clear. induction f as [|[[c m] l] f IH]; [cbn; split; [lra|discriminate]|]. cbn [forallb existsb]. intros A.
    apply andb_prop in A as [A B]. apply andb_prop in A as [C M]. destruct (IH B) as [F1 F2]. cbn [den dterm].
    assert (Cp : 0 < Q2R c) by (unfold Q2R; apply Rmult_lt_0_compat; [apply IZR_lt; now apply Z.ltb_lt in C|apply Rinv_0_lt_compat, IZR_lt; lia]).
    assert (Mp : 0 <= dmon e m).
    { clear - M. induction m as [|[v k] m IH]; cbn [dmon forallb] in *; [lra|]. apply andb_prop in M as [K M]. apply andb_prop in K as [K1 K2].
      apply Rmult_le_pos; [now apply even_power|now apply IH]. }
    pose proof (exp_pos (dlin e l)) as E. assert (T : 0 <= Q2R c * dmon e m * exp (dlin e l)) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra).
    split; [lra|]. intros H. apply orb_prop in H as [H|H]; [|specialize (F2 H); lra]. destruct m; [|discriminate]. cbn [dmon].
    rewrite Rmult_1_r. assert (0 < Q2R c * exp (dlin e l)) by now apply Rmult_lt_0_compat. lra. }
  now apply (N f A).
Qed.
(* what defines a name moves as the name does *)
Lemma named_log pr zs k e w : holds S par pr -> body pr zs k = Some (Log, e) -> 0 < den (env w) e ->
  is_derive (fun t => held S par e t w) (theta S) (den (env w) (derivative e)) ->
  is_derive (fun t => names S k (theta S) t (map w zs)) (theta S) (den (env w) (derivative e) / den (env w) e).
Proof.
  intros P B A D. apply (is_derive_ext (fun t => ln (held S par e t w))).
  - intros t. symmetry. apply (body_ok S par par_ok pr zs k Log e); [apply P|exact B].
  - apply (derive_ln (fun t => held S par e t w)); [exact A|exact D].
Qed.
Lemma named_let pr zs k e w : holds S par pr -> body pr zs k = Some (Let, e) ->
  is_derive (fun t => held S par e t w) (theta S) (den (env w) (derivative e)) ->
  is_derive (fun t => names S k (theta S) t (map w zs)) (theta S) (den (env w) (derivative e)).
Proof.
  intros P B D. apply (is_derive_ext (fun t => held S par e t w)); [|exact D].
  intros t. symmetry. apply (body_ok S par par_ok pr zs k Let e); [apply P|exact B].
Qed.
Lemma positive_at_ok pr m i e w : holds S par pr -> reached S m i w -> positive_at pr m i e = true -> 0 < den (env w) e.
Proof.
  intros P D H. apply orb_prop in H as [H|H]; [now apply above_zero_ok|]. apply existsb_exists in H as [x [I H]].
  destruct x as [| | |n j f|]; try discriminate. cbn [fcmp] in H. destruct (pcmp m n) eqn:A; try discriminate.
  destruct (icmp i j) eqn:B; try discriminate. destruct (ecmp _ _) eqn:C; try discriminate.
  apply pcmp_eq in A. apply icmp_eq in B. apply ecmp_eq in C. subst. destruct P as [_ [_ [_ [_ P]]]].
  pose proof (P _ I w D) as X. rewrite <- (tidy_ok (env w) (env_ok w)) in X |- *. now rewrite C.
Qed.
Lemma slope_within_ok n pr m i w : holds S par pr -> reached S m i w -> few w -> slopes_exist (slope_within n pr m i) w.
Proof.
  intros P D W. induction n as [|n IH]; (split; [now intros _|]); intros zs k; cbn [slope_within]; [discriminate|].
  destruct (body pr zs k) as [[[] e]|] eqn:B; try discriminate; intros H.
  - apply andb_prop in H as [H A]. apply andb_prop in H as [H K]. eexists.
    apply (named_log pr zs k e w P B (positive_at_ok pr m i e w P D A)). now apply (loss_derive (slope_within n pr m i)).
  - apply andb_prop in H as [H K]. eexists. apply (named_let pr zs k e w P B). now apply (loss_derive (slope_within n pr m i)).
Qed.
Lemma has_slope_ok pr m i w : holds S par pr -> reached S m i w -> few w -> slopes_exist (has_slope pr m i) w.
Proof. apply slope_within_ok. Qed.
Lemma calm_within_ok n pr m i v : holds S par pr -> calm_within n pr m i v = true -> settled S par m i v.
Proof.
  intros P. revert v; induction n as [|n IH]; intros v; (destruct v as [z b sg|j nz|zs k [] []]; cbn [calm_within];
    try (intros _; apply settled_here; intros r t w; try (destruct z, b); reflexivity)); try discriminate.
  1, 2: intros H; apply orb_prop in H as [H|H];
    [apply existsb_exists in H as [x [I X]]; destruct x as [m' i' u| | | |]; try discriminate; cbn [fcmp] in X;
      destruct (pcmp m m') eqn:A; try discriminate; destruct (icmp i i') eqn:Q; try discriminate; destruct (vcmp _ u) eqn:C; try discriminate;
      apply pcmp_eq in A; apply icmp_eq in Q; apply vcmp_eq in C; subst; destruct P as [_ [_ [_ [_ P]]]]; exact (P _ I)
    |apply settled_here; intros r t w; rewrite !(fixed_within_ok S par par_ok (depth pr) pr) by (exact H || apply P); reflexivity].
  destruct (body pr zs k) as [[s e]|] eqn:B; [|discriminate]. intros H w D.
  assert (L : locally (theta S) (fun t => den (fun v => val S par v t t w) e = den (fun v => at_time v t w) e)).
  { apply (within_locally (calm_within n pr m i) (fun v t => val S par v t t w) (fun v t => at_time v t w)); [|now destruct s].
    intros v V. exact (IH v V w D). }
  revert L. apply filter_imp. intros t E. cbn [val]. rewrite !(body_ok S par par_ok pr zs k s e) by (exact B || apply P).
  destruct s; [discriminate| |]; now rewrite E.
Qed.

(* ---------- means ---------- *)
Section Premises.
Variable pr : premises.
Hypothesis P : holds S par pr.
Lemma grad_ok i m a : smooth a = true -> within (has_slope pr m i) a = true ->
  mean S m i (grad S (held S par a)) = mean S m i (fun w => den (env w) (derivative a)).
Proof.
  intros H K. apply mean_at_reached. intros w D. apply is_derive_unique, (loss_derive (has_slope pr m i)); [exact H|exact K|].
  apply has_slope_ok; [exact P|exact D|apply (reached_few m i w D)].
Qed.
(* where no sample enters or leaves a region *)
Definition can_move (i : index) (m : measure) (a : ep) : bool := smooth a && within (has_slope pr m i) a && within (is_calm pr m i) a.
Lemma locally_held m i a w : reached S m i w -> within (is_calm pr m i) a = true ->
  locally (theta S) (fun t => held S par a t w = as_loss S par a t w).
Proof.
  intros D H. unfold held, as_loss. apply (within_locally (is_calm pr m i) (fun v t => at_time v t w) (fun v t => val S par v t t w)); [|exact H].
  intros v V. pose proof (calm_within_ok (depth pr) pr m i v P V w D) as L. revert L. apply filter_imp. intros t E. now symmetry.
Qed.
Lemma moves m i a w : can_move i m a = true -> reached S m i w ->
  is_derive (fun t => as_loss S par a t w) (theta S) (den (env w) (derivative a)).
Proof.
  intros H D. unfold can_move in H. apply andb_prop in H as [H C]. apply andb_prop in H as [H K].
  apply (is_derive_ext_loc (fun t => held S par a t w)); [exact (locally_held m i a w D C)|].
  apply (loss_derive (has_slope pr m i)); [exact H|exact K|]. apply has_slope_ok; [exact P|exact D|apply (reached_few m i w D)].
Qed.
Lemma spread_derive m i a w : can_move i m a = true -> possible S m 0 (draws i (size S)) w ->
  is_derive (fun t => spread S i (as_loss S par a t) w) (theta S) (spread S i (fun w => den (env w) (derivative a)) w).
Proof.
  intros H D. unfold spread. destruct (stepwise i) eqn:T.
  - apply (Sum_derive _ (fun t c => as_loss S par a t (at_place S c w))). intros c C. apply (moves m i a _ H). now apply reached_place.
  - apply (moves m i a _ H). unfold reached. now rewrite T.
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
Lemma moving_derive i m a : can_move i m a = true -> is_derive (moving S par i m a) (theta S)
  (datom (MeanGradient i m a) + match m with Mq => dside (map (fun z => (one, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i)) | _ => 0 end).
Proof.
  intros H. pose proof (E_derive S m 0 (draws i (size S)) (slots i) (fun t => spread S i (as_loss S par a t))
    (spread S i (fun w => den (env w) (derivative a))) (slots_once i) (draws_in i (size S)) (fun w D => spread_derive m i a w H D)) as D.
  match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
  cbn [Statements.datom]. rewrite (grad_ok i m a) by (unfold can_move in H; now destruct (smooth a), (within (has_slope pr m i) a)). rewrite E_plus. f_equal.
  destruct m; try apply E_zero. rewrite <- mean_total. apply E_ext. intros w. apply spread_total.
Qed.
Lemma log_derivative_ok l z : log_derivative_side pr l = Some z -> is_derive (moved S par l) (theta S) (dside z).
Proof.
  revert z; induction l as [|[c [[[i m] a]|]] l IH]; intros z; cbn [log_derivative_side moved].
  - intros H. apply Some_inj in H; subst z. apply derive_const.
  - destruct (log_derivative_side pr l) as [rest|]; [|discriminate]. unfold guard. fold (can_move i m a). destruct (can_move i m a) eqn:Sm; [|discriminate].
    intros H. apply Some_inj in H; subst z. rewrite app_ok. cbn [Statements.dside dproduct].
    pose proof (derive_plus _ _ _ _ _ (derive_scal _ (den (penv par) c) _ _ (moving_derive i m a Sm)) (IH _ eq_refl)) as D.
    match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
    destruct m; cbn [Statements.dside]; try ring.
    rewrite <- (map_map (fun z => Mean i Mq (mul (tidy a) (var_ (score z)))) (fun x => (c, [x]))).
    rewrite scaled_ok, map_map. ring.
  - intros H. pose proof (derive_plus _ _ _ _ _ (derive_const (den (penv par) c) (theta S)) (IH z H)) as D.
    rewrite Rplus_0_l in D. exact D.
Qed.
End Premises.
End Soundness.
