(* The curl of a field of expected gradients, on a tree of softmax logits with two directions.

   The field along v, E[grad L] at the policy that is moved by r along u, has a derivative in r; were the field the gradient
   of a function, it would not matter which of u and v comes first.  The derivative is that of a mean: of the measure, of log
   ratios, and of the score function along v, which bends by minus the covariance of u and v at each prefix. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Stepwise Derivatives Rules Checker Softmax Enclosures Elements Models.
Import ListNotations.
Open Scope R_scope.

(* two ways to the same policy *)
Lemma soft_soft X next (b u v : list X -> X -> R) (pos : forall w x, 0 < b w x) t r w x :
  soft X next (soft X next b v r) u t w x = soft X next (soft X next b u t) v r w x.
Proof.
  assert (K : forall a c d y z, soft X next (soft X next b c y) d z a x =
    b a x * exp (y * c a x) * exp (z * d a x) /
    match next a with [] => 1 | l => Sum l (fun x => b a x * exp (y * c a x) * exp (z * d a x)) end).
  { intros a c d y z. unfold soft at 1. pose proof (mass_pos X next b c pos y a) as P. unfold mass at 1.
    destruct (next a) as [|e l] eqn:N.
    - unfold soft, mass. rewrite N. field.
    - rewrite (Sum_ext (e :: l) _ (fun x => / mass X next b c y a * (b a x * exp (y * c a x) * exp (z * d a x)))).
      + rewrite Sum_scal. unfold soft. assert (Q : 0 < Sum (e :: l) (fun x => b a x * exp (y * c a x) * exp (z * d a x))).
        { cbn [Sum]. apply Rplus_lt_le_0_compat.
          - repeat apply Rmult_lt_0_compat; auto using exp_pos.
          - apply Sum_nonneg. intros. left. repeat apply Rmult_lt_0_compat; auto using exp_pos. }
        field. split; lra.
      + intros f _. unfold soft. field. lra. }
  rewrite !K. unfold Rdiv. apply (f_equal2 Rmult); [ring|]. destruct (next w) as [|e l]; [reflexivity|]. apply f_equal, Sum_ext; intros; ring.
Qed.

Section Field.
Variable m : model.          (* the policy moves along its first direction u; the field is one along v *)
Hypothesis ok : valid m = true.
Variable size : nat.
Notation next := (branches m). Notation T := (model_setting m ok size (fun _ _ _ _ => 0)). Notation par := (model_par m).
Notation b := (real (chance m Mq)). Notation u := (real (at_node m us)). Notation v := (real (at_node m vs)).
Notation X := (@segment nat).
Let P : forall i, par i true <> 0. Proof. apply model_par_ok. Qed.
Notation base_at r := (soft nat next b u r).
Definition shifted (r : R) : setting :=
  softmax nat next (List.length (nodes m)) (starts_ok m ok) (fun _ => path m) (fun _ => path_ok m ok)
    (base_at r) v (real (chance m Mp)) (real (chance m Mmu))
    (soft_pos nat next b u (chance_pos m ok Mq) r) (chance_pos m ok Mp) (chance_sum m ok Mp) (chance_pos m ok Mmu) (chance_sum m ok Mmu)
    (real (at_node m olds)) (third_pos m ok) (third_sum m ok)
    (fun i => real (reward m i)) (fun _ l => Q2R (qsums (reward m 1) l))
    (Nat.max 2 size) (Nat.le_max_l 2 size) (fun _ _ _ _ => 0) (fun _ _ l _ => derive_const 0 l) (fun _ _ _ _ => 0).
Definition field (k : measure) (i : index) (L : ep) (r : R) : R := mean (shifted r) k i (grad (shifted r) (held (shifted r) par L)).

Lemma base_sum r w : next w <> [] -> Sum (next w) (base_at r w) = 1.
Proof. apply soft_sum, chance_pos, ok. Qed.
Lemma shifted_q r x : q0 (shifted r) x = q T r x.
Proof. unfold shifted. rewrite softmax_q by apply base_sum. reflexivity. Qed.
Lemma shifted_score r w x : s (shifted r) (w, [x]) = v w x - Sum (next w) (fun y => base_at r w y * v w y).
Proof. unfold shifted. apply softmax_score, base_sum. Qed.
Definition bend (w : list nat) (_ : nat) : R := - Sum (next w) (fun y => (b w y * s T (w, [y])) * v w y).
Lemma score_bends (x : X) : is_derive (fun r => s (shifted r) x) 0 (sum bend (fst x) (snd x)).
Proof.
  destruct x as [w l]. cbn [fst snd]. revert w; induction l as [|a l IH]; intros w; cbn [sum].
  - apply (is_derive_ext (fun _ => 0)); [|apply derive_const]. intros r. symmetry. apply (additive_nil (s (shifted r)) w (score_adds (shifted r))).
  - apply (is_derive_ext (fun r => s (shifted r) (w, [a]) + s (shifted r) (w ++ [a], l))).
    { intros r. symmetry. exact (score_adds (shifted r) w [a] l). }
    apply derive_plus; [|apply IH]. apply (is_derive_ext (fun r => v w a + -1 * Sum (next w) (fun y => base_at r w y * v w y))).
    { intros r. rewrite shifted_score. match goal with |- ?l = ?r => change (@eq R l r) end. ring. }
    replace (bend w a) with (0 + -1 * Sum (next w) (fun y => (b w y * s T (w, [y])) * v w y + base_at 0 w y * 0)).
    + apply derive_plus; [apply derive_const|]. apply derive_scal.
      apply (Sum_derive (next w) (fun r y => base_at r w y * v w y)). intros y _. apply (derive_mult (fun r => base_at r w y)).
      * pose proof (q_derive T (w, [y])) as D. rewrite q0_token in D.
        apply (is_derive_ext (fun r => q T r (w, [y]))); [intros r; unfold q; cbn [product fst snd]; apply Rmult_1_r|].
        replace (b w y) with (next_q T (theta T) w y); [exact D|]. apply (soft_0 nat next b u (chance_sum m ok Mq)).
      * apply derive_const.
    + unfold bend. rewrite (Sum_ext _ _ (fun y => b w y * s T (w, [y]) * v w y)) by (intros; ring). ring.
Qed.

(* the score function along u, and how that along v bends, in the place of generic functions *)
Definition turning (w : world T) (a : var) (r : R) : R :=
  match a with
  | Sample z (Fn O _) _ => Sum (w z) (s T)
  | Sample z (Fn _ _) _ => Sum (w z) (fun x => sum bend (fst x) (snd x))
  | _ => env (shifted r) par w a end.
Definition nothing_given : premises := Premises [] [] None [] [].
Definition differentiable (L : ep) : bool := smooth L && within (has_slope nothing_given Mq Single) L.
Definition turn (a : var) : option mon :=
  match a with
  | Sample z (K1 | W | LogQ | ToOld) _ => Some [(Sample z (Fn 0 0) false, 1%Z)]
  | Sample z Score _ => Some [(Sample z (Fn 1 0) false, 1%Z)]
  | _ => None end.
Definition no_function (a : var) : bool := match a with Sample _ (Fn _ _) _ | Named _ _ _ _ => false | _ => true end.
Lemma turn_inv a d : turn a = Some d -> invertible a = false.
Proof. destruct a as [[] []| |]; cbn; congruence. Qed.
Lemma turning_ok w a r : invertible a = true -> turning w a r <> 0.
Proof.
  destruct a as [z e sg|i nz|].
  - destruct z, e; try discriminate; intros _; exact (length_nonzero (shifted r) (w Whole)).
  - destruct nz; [intros _; apply P|discriminate].
  - discriminate.
Qed.
Lemma logs_turn (l : list X) (c : X -> R) : is_derive (fun r => Sum l (fun x => ln (q0 (shifted r) x) - c x)) 0 (Sum l (s T)).
Proof.
  apply (is_derive_ext (fun r => Sum l (fun x => ln (q T r x) - c x))); [|exact (log_derive T l c)].
  intros r. apply Sum_ext; intros x _. now rewrite shifted_q.
Qed.
Lemma turning_derive w a : is_derive (fun r => turning w a r) 0
  (match turn a with Some d => dmon (fun a => turning w a 0) d | None => 0 end).
Proof.
  assert (One : forall z i, dmon (fun a => turning w a 0) [(Sample z (Fn i 0) false, 1%Z)] = turning w (Sample z (Fn i 0) false) 0).
  { intros z i. cbn [dmon]. rewrite power_1. ring. }
  destruct a as [z e sg|j nz|zs j c sg]; [|apply (is_derive_ext (fun _ => par j nz)); [reflexivity|apply derive_const]|].
  2: { cbn [turn]. apply (is_derive_ext (fun _ => turning w (Named zs j c sg) 0)); [|apply derive_const]. intros r. destruct c; reflexivity. }
  destruct e as [| | | | | |i|[|i] d|]; cbn [turn]; rewrite ?One.
  - apply (is_derive_ext (fun r => Sum (w z) (fun x => ln (q0 (shifted r) x) - ln (p T x)))); [|apply logs_turn].
    intros r. cbn [turning]. now rewrite env_sum by easy.
  - apply (is_derive_ext (fun r => Sum (w z) (fun x => ln (q0 (shifted r) x) - ln (mu T x)))); [|apply logs_turn].
    intros r. cbn [turning]. now rewrite env_sum by easy.
  - apply (is_derive_ext (fun r => Sum (w z) (fun x => ln (q0 (shifted r) x) - 0))); [|apply (logs_turn (w z) (fun _ => 0))].
    intros r. cbn [turning]. rewrite env_sum by easy. apply Sum_ext; intros x _. cbn [each]. ring.
  - apply (is_derive_ext (fun _ => turning w (Sample z Length sg) 0)); [|apply derive_const]. intros r. destruct z; reflexivity.
  - apply (is_derive_ext (fun _ => turning w (Sample z Any sg) 0)); [|apply derive_const]. intros r. destruct z; reflexivity.
  - cbn [turning]. apply (is_derive_ext (fun r => Sum (w z) (s (shifted r)))); [intros r; now rewrite env_sum by easy|].
    apply (Sum_derive (w z) (fun r x => s (shifted r) x)). intros x _. apply score_bends.
  - apply (is_derive_ext (fun _ => turning w (Sample z (Given i) sg) 0)); [|apply derive_const]. intros r. destruct z; reflexivity.
  - cbn [turning]. apply derive_const.
  - cbn [turning]. apply derive_const.
  - apply (is_derive_ext (fun r => Sum (w z) (fun x => ln (q0 (shifted r) x) - ln (old T x)))); [|apply logs_turn].
    intros r. cbn [turning]. now rewrite env_sum by easy.
Qed.

(* the derivative of the field, as a mean *)
Definition turned_by (k : measure) (i : index) (L : ep) : ep :=
  let D := derivative L in
  add (derive_by turn D)
    (match k with Mq => fold_right (fun z acc => add (mul (tidy D) (var_ (Sample z (Fn 0 0) false))) acc) [] (slots i) | _ => [] end).
Lemma E_shifted k j r ds (F : world T -> R) : E (shifted r) k 0 j ds F = E T k r j ds F.
Proof.
  revert j F; induction ds as [|z ds IH]; intros j F; cbn [E]; [reflexivity|].
  apply Sum_ext; intros x _. f_equal; [|apply IH]. destruct k; try reflexivity. apply shifted_q.
Qed.
Theorem field_turns k i L : differentiable L = true -> within no_function (derivative L) = true ->
  is_derive (field k i L) 0 (mean T k i (fun w => den (fun a => turning w a 0) (turned_by k i L))).
Proof.
  intros Sm No. apply andb_prop in Sm as [Sm Sl]. set (D := derivative L) in *.
  pose proof (E_derive T k 0 (draws i (Setting.size T)) (slots i) (fun r => spread T i (fun w => den (fun a => turning w a r) D))
    (spread T i (fun w => den (fun a => turning w a 0) (derive_by turn D))) (slots_once i) (draws_in i (Setting.size T))) as H.
  assert (F : forall w, is_derive (fun r => den (fun a => turning w a r) D) 0 (den (fun a => turning w a 0) (derive_by turn D))).
  { intros w. apply (derive_by_ok turn turn_inv (turning w) 0); [intros a r; apply turning_ok|intros a; apply turning_derive]. }
  match type of H with ?A -> _ => assert (Ok : A) end.
  { intros w _. unfold spread. destruct (stepwise i); [|apply F].
    apply (Sum_derive _ (fun r c => den (fun a => turning (at_place T c w) a r) D)). intros c _. apply F. }
  specialize (H Ok). clear Ok.
  apply (is_derive_ext (fun r => E T k r 0 (draws i (Setting.size T)) (spread T i (fun w => den (fun a => turning w a r) D)))).
  - intros r. unfold field. rewrite (grad_ok (shifted r) par P nothing_given (proj1 (satisfied_free (shifted r) par [] ltac:(easy))) i k L Sm Sl). unfold mean, mean_at. change (theta (shifted r)) with 0.
    rewrite E_shifted. apply E_ext. intros w. unfold spread.
    assert (V : forall w, den (fun a => turning w a r) D = den (env (shifted r) par w) D).
    { intros y. apply (within_ok no_function); [|exact No]. intros [z [] sg| |] N; try discriminate; reflexivity. }
    destruct (stepwise i); [|apply V]. apply Sum_ext; intros c _. apply V.
  - match type of H with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact H|] end end.
    unfold mean, mean_at. change (theta T) with 0. apply E_ext. intros w. unfold turned_by. fold D.
    assert (Z : forall w, den (fun a => turning w a 0) (fold_right (fun z acc => add (mul (tidy D) (var_ (Sample z (Fn 0 0) false))) acc) [] (slots i))
      = den (fun a => turning w a 0) D * total T (slots i) (s T) w).
    { clear H. intros y. unfold total. induction (slots i) as [|z zs IH]; cbn [fold_right Sum]; [cbn [den]; ring|].
      rewrite add_ok, IH, (mul_ok _ (fun a => turning_ok y a 0)), (tidy_ok _ (fun a => turning_ok y a 0)), var_ok. cbn [turning]. ring. }
    destruct k; try (rewrite Rplus_0_r; unfold spread; destruct (stepwise i); [apply Sum_ext; intros c _|];
      rewrite add_ok; cbn [den]; ring).
    rewrite (spread_total T i (fun w => den (fun a => turning w a 0) D) (s T) w), <- spread_plus.
    unfold spread. destruct (stepwise i); [apply Sum_ext; intros c _|]; rewrite add_ok, Z; reflexivity.
Qed.

(* ---------- values ---------- *)
Definition bend_q (w : list nat) (_ : nat) : Q :=
  Qopp (fold_right Qplus 0%Q (map (fun y => Qred (chance m Mq w y * tilt m w y * at_node m vs w y)) (next w))).
Lemma fold_sum (f : nat -> Q) l : Q2R (fold_right Qplus 0%Q (map f l)) = Sum l (fun y => Q2R (f y)).
Proof. induction l as [|y l IH]; cbn [map fold_right Sum]; [apply Q2R_0|]. now rewrite Q2R_plus, IH. Qed.
Lemma tilt_v_ok (x : X) : s (shifted 0) x = sum (real (tilt_v m)) (fst x) (snd x).
Proof.
  destruct x as [w l]. cbn [fst snd]. revert w; induction l as [|a l IH]; intros w; cbn [sum].
  - apply (additive_nil (s (shifted 0)) w (score_adds (shifted 0))).
  - etransitivity; [exact (score_adds (shifted 0) w [a] l)|]. f_equal; [|apply IH]. etransitivity; [apply shifted_score|].
    change (real (tilt_v m) w a) with (Q2R ((tilt_v m) w a)). unfold tilt_v, tilt_along. rewrite Q2R_red, Q2R_minus, fold_sum.
    apply (f_equal2 Rminus); [reflexivity|]. apply Sum_ext; intros y _. rewrite Q2R_mult.
    now rewrite (soft_0 nat next b u (chance_sum m ok Mq)).
Qed.
Lemma bend_ok w a : bend w a = real bend_q w a.
Proof.
  change (real bend_q w a) with (Q2R (bend_q w a)). unfold bend, bend_q. rewrite Q2R_opp, fold_sum.
  apply f_equal, Sum_ext; intros y _.
  rewrite Q2R_red, !Q2R_mult. now rewrite (tilt_ok m ok size (fun _ _ _ _ => 0)).
Qed.
Lemma sum_ext (f g : list nat -> nat -> R) w l : (forall w a, f w a = g w a) -> sum f w l = sum g w l.
Proof. intros H. revert w; induction l as [|a l IH]; intros w; cbn [sum]; [reflexivity|]. now rewrite H, IH. Qed.
Definition value_turning (w : slot -> list X) (a : var) : option Q :=
  match a with
  | Sample z (Fn O _) _ => Some (qsums (tilt m) (w z)) | Sample z (Fn _ _) _ => Some (qsums bend_q (w z))
  | Sample z Score _ => Some (qsums (tilt_v m) (w z)) | _ => value_at m w a end.
Lemma turning_plain w a : (match a with Sample _ Score _ => false | _ => no_function a end) = true -> turning w a 0 = env T par w a.
Proof.
  assert (Q : forall x, q0 (shifted 0) x = q0 T x) by (intros x; exact (shifted_q 0 x)).
  destruct a as [z e sg| |]; [|reflexivity|discriminate]. destruct e; cbn [no_function turning]; try discriminate; intros _;
    try (destruct z; reflexivity); rewrite !env_sum by easy; apply Sum_ext; intros x _; cbn [each]; now rewrite ?Q.
Qed.
Lemma value_turning_ok (w : world T) a c : value_turning w a = Some c -> turning w a 0 = Q2R c.
Proof.
  destruct a as [z e sg|j nz|]; [|intros H; rewrite turning_plain by reflexivity; exact (value_at_ok m ok size (fun _ _ _ _ => 0) w _ c H)|discriminate].
  destruct e as [| | | | | |i|[|i] d|]; cbn [value_turning]; intros H; try (rewrite turning_plain by reflexivity; exact (value_at_ok m ok size (fun _ _ _ _ => 0) w _ c H)).
  - injection H as <-. cbn [turning]. rewrite env_sum by easy. cbn [each]. rewrite qsums_ok. apply Sum_ext; intros x _. apply tilt_v_ok.
  - injection H as <-. cbn [turning]. rewrite qsums_ok. apply Sum_ext; intros x _. apply score_ok.
  - injection H as <-. cbn [turning]. rewrite qsums_ok. apply Sum_ext; intros x _. apply sum_ext. apply bend_ok.
Qed.
Lemma ratio_turning_ok (w : world T) a r : ratio_at m w a = Some r -> value_turning w a = None -> 0 < Q2R r -> turning w a 0 = ln (Q2R r).
Proof.
  intros H N R1. destruct a as [z e sg|j nz|]; try discriminate. destruct e; try discriminate; rewrite turning_plain by reflexivity;
    (apply (ratio_at_ok m ok size (fun _ _ _ _ => 0) w _ r H); [exact N|exact R1]).
Qed.
Definition slope_itv (k : measure) (i : index) (L : ep) : option itv :=
  imean m i k (fun w => iep (value_turning w) (ratio_at m w) (turned_by k i L)).
Theorem slope_itv_ok k i L e : differentiable L = true -> within no_function (derivative L) = true -> slope_itv k i L = Some e ->
  inside e (Derive (field k i L) 0).
Proof.
  intros Sm No H. rewrite (is_derive_unique _ _ _ (field_turns k i L Sm No)). revert H. apply imean_ok. intros w y j A I.
  rewrite <- (den_ext (fun a => turning w a 0) (fun a => turning y a 0)).
  - revert I. apply iep_ok; [intros a; apply turning_ok|apply value_turning_ok|apply ratio_turning_ok].
  - intros [z e' sg|j' nz|zs j' c sg]; [|reflexivity|cbn [turning]; unfold env; cbn [val]; now rewrite (map_ext w y A)]. destruct e' as [| | | | | | |[|?] ?|]; cbn [turning]; unfold env; destruct z; cbn [val]; now rewrite A.
Qed.
End Field.

(* ---------- the curl ---------- *)
Definition turned (m : model) : model :=
  Model (map (fun '(w, d) => (w, Node (qs d) (ps d) (mus d) (olds d) (vs d) (us d) (pays d))) (nodes m)) (path m) (values m).
(* the score function along the second direction is that of the policy which moves along it *)
Lemma turned_node m w : node_at (turned m) w = option_map (fun d => Node (qs d) (ps d) (mus d) (olds d) (vs d) (us d) (pays d)) (node_at m w).
Proof.
  unfold node_at, turned. cbn [nodes]. induction (nodes m) as [|[v d] l IH]; [reflexivity|]. cbn [map find fst].
  destruct (same_prefix v w); [reflexivity|exact IH].
Qed.
Lemma turned_row m f g u a : (forall d, f (Node (qs d) (ps d) (mus d) (olds d) (vs d) (us d) (pays d)) = g d) ->
  at_node (turned m) f u a = at_node m g u a.
Proof. intros H. unfold at_node. rewrite turned_node. destruct (node_at m u) as [d|]; [|reflexivity]. cbn [option_map]. now rewrite H. Qed.
Theorem second_score_is m ok ok' n N N' l x :
  fn (model_setting m ok n N) 0 0 l x = s (model_setting (turned m) ok' n N') x.
Proof.
  rewrite (score_ok (turned m) ok' n N'). cbn [fn model_setting softmax second_score]. apply sum_ext. intros u a. unfold real. f_equal.
  unfold tilt, tilt_v, tilt_along. f_equal. rewrite (turned_row m us vs u a) by easy. f_equal. f_equal.
  replace (branches (turned m) u) with (branches m u) by (unfold branches; rewrite turned_node; now destruct (node_at m u)).
  generalize (branches m u) as ys. induction ys as [|y ys IH]; [reflexivity|]. cbn [map fold_right]. rewrite IH. f_equal.
  unfold chance, row_of. now rewrite (turned_row m qs qs u y), (turned_row m us vs u y) by easy.
Qed.
Definition curled (k : measure) (i : index) (L : ep) (m : model) : bool :=
  valid m && valid (turned m) && differentiable L && within no_function (derivative L) &&
  match slope_itv m k i L, slope_itv (turned m) k i L with
  | Some e, Some f => contradicts Checker.Equal (iadd e (iscale (-1) f))
  | _, _ => false end.
(* a policy with two directions, and the field along each of them as the policy is moved along the other *)
Definition has_curl (k : measure) (i : index) (L : ep) : Prop :=
  exists m ok ok' n, Derive (field m ok n k i L) 0 <> Derive (field (turned m) ok' n k i L) 0.
Theorem curled_ok k i L m : curled k i L m = true -> has_curl k i L.
Proof.
  unfold curled. intros H. apply andb_prop in H as [H C]. apply andb_prop in H as [H No]. apply andb_prop in H as [H Sm].
  apply andb_prop in H as [V W]. destruct (slope_itv m k i L) as [e|] eqn:A; [|discriminate].
  destruct (slope_itv (turned m) k i L) as [f|] eqn:B; [|discriminate]. exists m, V, W, 2%nat.
  pose proof (slope_itv_ok m V 2 k i L e Sm No A) as A1. pose proof (slope_itv_ok (turned m) W 2 k i L f Sm No B) as B1.
  pose proof (contradicts_ok _ _ _ C (iadd_ok _ _ _ _ A1 (iscale_ok (-1) _ _ B1))) as D. cbn in D.
  intros Q. apply D. rewrite Q, Q2R_m1. ring.
Qed.
